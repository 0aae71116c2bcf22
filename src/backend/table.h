// How the ranks of a group come to an agreement at the beginning of a call of torch.distributed's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "backend/memory.h"
#include "shm/board/thresholds.h"
#include "shm/calls/all_reduce.h"
#include "shm/group/group.h"
#include "terms/comparison.h"

namespace shardway::backend {

// One rank's call, as it understood its arguments.
struct Terms {
  at::ScalarType dtype = at::ScalarType::Undefined;  // of a barrier, which has no tensor
  uint8_t op = 0;                                    // see wire::kOpNames
  double factor = 1;                                 // of premul_sum
  int64_t root = -1;
  Counts sends = {};  // a rank that is not asked for any says what the others would
  Counts takes = {};
  std::vector<int64_t> shape = {};  // of a sparse tensor
  int64_t sparse_dims = 0;
};

// One rank's side of a call: what it says, and what moves when all say what fits.
struct Prepared {
  Terms terms = {};
  std::variant<std::monostate, shm::ContiguousCall, shm::AllReduce> moves = {};
};

// Of a group: so long a block can be told in a meeting.
inline constexpr int64_t kMostRanks = 1024;
static_assert(wire::longest_line(kMostRanks) + wire::kProblemBytes <= shm::kNoteBytes);

// Where the ranks of a group come to an agreement.
class Table {
 public:
  explicit Table(int64_t size);

  // Collective: agrees, and makes the moves in the same meeting. What `prepare` throws is told to all ranks,
  // and thrown on all of them: the same c10::ValueError, as where two disagree. Throws shm::BadHeader for
  // bytes that are no block. Gives what all ranks said, valid until the next call.
  wire::BlockRows run(shm::SharedGroup& group, Collective call, const std::function<Prepared()>& prepare);

 private:
  int64_t write(Collective call, const Terms& terms);
  int64_t write_problem(Collective call, const std::string& problem);
  bool says_what_all_say(int64_t bytes) const;
  bool agree(int64_t bytes);

  int64_t size_;
  std::vector<uint8_t> mine_;
  std::vector<uint8_t> rows_;
  std::vector<int64_t> lengths_;  // of the blocks in them
};

}  // namespace shardway::backend
