// What the ranks come to from what they told one another at the beginning of a call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <variant>
#include <vector>

#include "backend/note.h"
#include "shm/calls/all_reduce.h"
#include "shm/group/group.h"

namespace shardway::backend {

// One rank's call, as it understood its arguments.
struct Terms {
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10d::ReduceOp::RedOpType op = c10d::ReduceOp::UNUSED;
  double factor = 1;  // of PREMUL_SUM
  int64_t root = -1;
  Counts sends = {};  // a rank that is not asked for any says what the others would
  Counts takes = {};
  std::span<const std::byte> words = {};  // what else the others are to know
};

// What all ranks said, once they agree. Valid until the next agreement.
class Heard {
 public:
  explicit Heard(std::span<const Note> notes) : notes_(notes) {}

  // Throws the same c10::ValueError on every rank when one has a problem or when two disagree.
  void check(CallKind call) const;

  int64_t sends(int64_t from, int64_t to) const { return note(from).sends.of(to); }
  int64_t takes(int64_t at, int64_t from) const { return note(at).takes.of(from); }

  // What else a rank told; throws shm::BadHeader where that has not this length.
  const std::byte* words(int64_t rank, int64_t bytes) const;

 private:
  int64_t size() const { return static_cast<int64_t>(notes_.size()); }
  const Note& note(int64_t rank) const { return notes_[static_cast<size_t>(rank)]; }
  void check_terms(CallKind call, int64_t rank) const;
  void check_counts(CallKind call) const;
  bool are_counts_alike() const;
  void check_pair(CallKind call, int64_t from, int64_t to) const;

  std::span<const Note> notes_;
};

// One rank's side of a call: what it says, and what moves when all say what fits.
struct Prepared {
  Terms terms = {};
  std::variant<std::monostate, shm::Flat, shm::AllReduce> moves = {};
};

// Where the ranks of a group come to an agreement.
class Table {
 public:
  explicit Table(int64_t size);

  // Collective: agrees, and makes the moves in the same meeting. What `prepare` throws is told to all ranks,
  // and thrown on all of them. Throws shm::BadHeader for a note that cannot be.
  Heard run(shm::SharedGroup& group, CallKind call, const std::function<Prepared()>& prepare);

 private:
  void read(int64_t rank);

  int64_t size_;
  std::vector<std::byte> note_;
  std::vector<std::byte> rows_;
  std::vector<int64_t> lengths_;  // of the notes in them
  std::vector<Note> notes_;
};

}  // namespace shardway::backend
