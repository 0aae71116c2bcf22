// How the ranks of a group come to an agreement at the beginning of one of torch.distributed's calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "c10d_calls/memory.h"
#include "shm/board/thresholds.h"
#include "shm/calls/all_reduce.h"
#include "shm/group/group.h"
#include "terms/comparison.h"

namespace shardway::backend {

// One rank's call, as it understood its arguments.
struct Terms {
  at::ScalarType dtype = at::ScalarType::Undefined;  // undefined: a barrier, which has no tensor
  uint8_t op = 0;                                    // see wire::kOpNames
  double factor = 1;                                 // of premul_sum
  shm::Combine how = {};                             // what the op means; not told
  int64_t root = -1;
  // A rank that sends or takes nothing in this call gives the count that it would send or take otherwise.
  Counts sends = {};
  Counts takes = {};
  std::vector<int64_t> shape = {};  // of a sparse tensor
  int64_t sparse_dims = 0;
};

// One rank's side of a call: what it says, and what it moves if all ranks agree.
struct Prepared {
  Terms terms = {};
  std::variant<std::monostate, shm::ContiguousCall, shm::AllReduce> moves = {};
};

// Most ranks of a group: up to this size the longest block fits into a note.
inline constexpr int64_t kMostRanks = 1024;
static_assert(wire::longest_line(kMostRanks) + wire::kProblemBytes <= shm::kNoteBytes);

// Where the ranks of a group come to an agreement.
class Table {
 public:
  // Calls of tensors on different devices do not match.
  explicit Table(int64_t size, c10::DeviceType device = c10::DeviceType::CPU);

  c10::DeviceType device() const { return device_; }

  // Collective: agrees, and makes the moves in the same meeting. If `prepare` throws, this rank tells the
  // others, and all ranks throw the same c10::ValueError; so they do if two ranks disagree. Throws
  // shm::BadHeader for bytes that are not a valid block. Returns what all ranks said, valid until the next
  // call.
  wire::BlockRows run(shm::SharedGroup& group, Collective call, const std::function<Prepared()>& prepare);

 private:
  bool says_what_all_say(int64_t bytes) const;
  bool agree(int64_t bytes);

  int64_t size_;
  c10::DeviceType device_;
  std::vector<uint8_t> mine_;
  std::vector<uint8_t> rows_;
  std::vector<int64_t> lengths_;  // of the blocks in rows_
};

}  // namespace shardway::backend
