// What ranks that share a GPU tell one another before a route: where each input lies, and how much moves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/shared_allocations.h"
#include "shardway/route.h"

namespace shardway {

// Where a push begins in the input of the rank that tells it.
struct ToldPush {
  int64_t peer = 0;
  std::vector<int64_t> offset = {};
};

struct InputPlace {
  std::string problem = {};  // why this rank's tensor cannot be moved; then nothing else counts
  cuda::Uuid gpu = {};
  uint64_t freed = 0;  // the number of an allocation that was told before and is no more; 0: none
  cuda::AllocationName allocation = {};
  int64_t offset = 0;  // of the input in the allocation
  int64_t dtype = 0;
  int64_t element_bytes = 0;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // in bytes
  std::vector<int64_t> pushed = {};   // elements to each rank
  std::vector<int64_t> pulled = {};   // elements from each rank
  std::vector<ToldPush> pushes = {};  // of an all-to-all, whose takers may not know where their boxes lie
};

// Fills in all but the problem, the GPU and the memory.
InputPlace place_of(const Route& route, const at::Tensor& x);

// The places of one rank in the routes of a call.
using InputPlaces = std::vector<InputPlace>;

std::vector<std::byte> written(const InputPlaces& places);

// Throws c10::DistBackendError if the bytes are not those of places among so many ranks.
InputPlaces read_places(std::span<const std::byte> bytes, int64_t ranks, int64_t rank);

// Why the ranks cannot move what they told; empty if they can. `of_ranks` has the places of each rank. The
// same on every rank.
std::string disagreement_of(const std::vector<InputPlaces>& of_ranks);

// Where the box of a pull lies in the peer's allocation, in bytes. `nth` is the number of the pull among
// those from this peer. Throws c10::DistBackendError if it is not inside the peer's tensor and allocation.
int64_t offset_of(const Move& pull, const InputPlace& peer, int64_t rank, int64_t nth);

}  // namespace shardway
