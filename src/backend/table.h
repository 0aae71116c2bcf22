// What the ranks tell one another at the beginning of every call, and what they come to from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "shm/group.h"

namespace shardway::backend {

enum class Call : uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  sparse_all_reduce,
  barrier
};

const char* name_of(Call call);

// Elements from or to each rank.
struct Counts {
  int64_t each = 0;
  std::vector<int64_t> by_rank = {};  // empty: `each` for all

  int64_t of(int64_t rank) const { return by_rank.empty() ? each : by_rank[static_cast<size_t>(rank)]; }
};

// One rank's call, as it understood its arguments.
struct Terms {
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::UNUSED;
  double factor = 1;  // of PREMUL_SUM
  int64_t root = -1;
  Counts sends = {};  // a rank that is not asked for any says what the others would
  Counts takes = {};
  std::span<const std::byte> input = {};  // all that others need of this rank
};

// What all ranks said, once they agree. Valid until the next agreement.
class Heard {
 public:
  Heard(const std::byte* rows, int64_t size, int64_t row_bytes)
      : rows_(rows), size_(size), row_bytes_(row_bytes) {}

  // Throws the same c10::ValueError on every rank when one has a problem or when two disagree.
  void check(Call call) const;

  int64_t sends(int64_t from, int64_t to) const;
  int64_t takes(int64_t at, int64_t from) const;

  // Every rank's input came with its note.
  bool has_inputs() const;
  const std::byte* input(int64_t rank) const;

 private:
  const std::byte* row(int64_t rank) const { return rows_ + rank * row_bytes_; }
  std::string problem(int64_t rank) const;
  void check_terms(Call call, int64_t rank) const;
  void check_counts(Call call) const;
  bool are_counts_alike() const;
  void check_pair(Call call, int64_t from, int64_t to) const;

  const std::byte* rows_;
  int64_t size_;
  int64_t row_bytes_;
};

// Where the ranks of a group come to an agreement.
class Table {
 public:
  explicit Table(int64_t size);

  // Collective. What `prepare` throws is told to all ranks, and thrown on all of them.
  Heard agree(shm::Group& group, Call call, const std::function<Terms()>& prepare);

 private:
  int64_t write(Call call, const Terms& terms, const std::string& problem);

  int64_t size_;
  std::vector<std::byte> note_;
  std::vector<std::byte> rows_;
};

}  // namespace shardway::backend
