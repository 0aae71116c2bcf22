// One rank's part of a collective, as bytes: boxes that it pulls into its output, and boxes of its input that
// others pull. Strides are in bytes and at least 0; offsets and extents count elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/kernels/dims.h"
#include "shm/kernels/reduce.h"
#include "shm/kernels/small_vector.h"

namespace shardway::shm {

// An offset that only the owner of the input knows: it is read from the owner's header.
inline constexpr int64_t kUnknown = -1;

struct Input {
  const std::byte* data = nullptr;
  FixedDims shape = {};
  FixedDims strides = {};
};

// A box of the input of `peer`, put at `to` in the output. The k-th pull from a peer is the k-th push of that
// peer to this rank.
struct Pull {
  int64_t peer = 0;
  FixedDims from = {};
  FixedDims to = {};
  FixedDims extent = {};
  const Input* here = nullptr;  // the peer's input, where this rank has it already, as it has its own
};

struct Push {
  int64_t peer = 0;
  FixedDims from = {};
  FixedDims extent = {};
};

// A part of the output and the pulls whose elements are combined in it, in this order. Landings do not
// overlap.
struct PartAddend {
  int64_t pull = 0;     // index into the part's pulls
  FixedDims from = {};  // within that pull's box
};
struct PartLanding {
  FixedDims to = {};
  FixedDims extent = {};
  Few<PartAddend> addends = {};
};

struct Part {
  int64_t element_bytes = 1;
  Input input = {};
  std::byte* output = nullptr;
  FixedDims output_strides = {};
  Few<Pull> pulls = {};                           // ordered by peer
  Few<Push> pushes = {};                          // ordered by peer; those to this rank itself are not read
  std::optional<Combine> combine = std::nullopt;  // without: no two pulls land on one element
  std::vector<PartLanding> landings = {};         // read only with `combine`

  // In a list: the ranks that pull do not know where the boxes lie, so this rank's header lists the offsets.
  // At most one part of a list may set this.
  bool lists_offsets = false;

  // In a list of several meetings: all that this rank pulls in them. A large result goes past the cache.
  int64_t list_bytes = 0;

  // Every rank has an input of the same shape, pushes box r of it to rank r, and combines what it pulls into
  // one landing, its whole output: then the ranks may share the work.
  bool is_reduce_scatter = false;
};

// The parts of a call, one per tensor, in the same order on every rank.
using PartList = Few<const Part*>;

}  // namespace shardway::shm
