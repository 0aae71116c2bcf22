#include "backend/table.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "shm/calls/header.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

constexpr int64_t kRowBytes = shm::kNoteBytes;
constexpr uint64_t kNotes = shm::mark_of("torch.distributed");

bool has_root(CallKind call) {
  return call == CallKind::broadcast || call == CallKind::reduce || call == CallKind::gather ||
         call == CallKind::scatter;
}

// All ranks have a tensor of one size.
bool is_of_one_size(CallKind call) {
  return call == CallKind::all_reduce || call == CallKind::broadcast || call == CallKind::reduce;
}

const char* name_of_op(uint8_t op) {
  constexpr std::array kNames = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  return op < kNames.size() ? kNames[op] : "none";
}

std::string dtype_name(uint8_t dtype) {
  if (dtype >= static_cast<uint8_t>(at::ScalarType::NumOptions)) return "an unknown one";
  return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(dtype)).first);
}

template <class A, class B>
[[noreturn]] void disagree(CallKind call, const char* what, const A& first, const B& other, int64_t rank) {
  TORCH_CHECK_VALUE(false, name_of(call), ": ranks disagree on ", what, ": ", first, " on rank 0, ", other,
                    " on rank ", rank);
}

void move(shm::SharedGroup& group, const Prepared& prepared, const shm::Subject& subject,
          const shm::Talk& talk) {
  if (const auto* flat = std::get_if<shm::Flat>(&prepared.moves)) {
    group.run(*flat, subject, &talk);
  } else if (const auto* all_reduce = std::get_if<shm::AllReduce>(&prepared.moves)) {
    group.run(*all_reduce, subject, &talk);
  } else {
    group.gather_notes(talk, subject);
  }
}

}  // namespace

const std::byte* Heard::words(int64_t rank, int64_t bytes) const {
  const auto there = static_cast<int64_t>(note(rank).input.size());
  if (bytes != there)
    throw shm::BadHeader("rank " + std::to_string(rank) + " tells " + std::to_string(there) +
                         " bytes, where " + std::to_string(bytes) + " are expected");
  return note(rank).input.data();
}

void Heard::check(CallKind call) const {
  for (int64_t rank = 0; rank < size(); ++rank) {
    TORCH_CHECK_VALUE(note(rank).problem.empty(), name_of(note(rank).call), ": ", note(rank).problem,
                      " (rank ", rank, ")");
  }
  for (int64_t rank = 1; rank < size(); ++rank) check_terms(call, rank);
  check_counts(call);
}

void Heard::check_terms(CallKind call, int64_t rank) const {
  const Note& first = note(0);
  const Note& other = note(rank);
  if (other.call != first.call) disagree(call, "the call", name_of(first.call), name_of(other.call), rank);
  if (other.dtype != first.dtype)
    disagree(call, "dtype", dtype_name(first.dtype), dtype_name(other.dtype), rank);
  if (other.op != first.op) disagree(call, "op", name_of_op(first.op), name_of_op(other.op), rank);
  if (other.factor != first.factor) disagree(call, "the factor", first.factor, other.factor, rank);
  if (other.root != first.root) disagree(call, "the root", first.root, other.root, rank);
}

bool Heard::are_counts_alike() const {
  const int64_t first = note(0).sends.each;
  return std::all_of(notes_.begin(), notes_.end(), [first](const Note& note) {
    const bool is_listed = !note.sends.by_rank.empty() || !note.takes.by_rank.empty();
    return !is_listed && note.sends.each == first && note.takes.each == first;
  });
}

void Heard::check_counts(CallKind call) const {
  if (are_counts_alike()) return;
  if (is_of_one_size(call)) {
    for (int64_t rank = 1; rank < size(); ++rank) {
      if (sends(rank, 0) != sends(0, 0))
        disagree(call, "the number of elements", sends(0, 0), sends(rank, 0), rank);
    }
    return;
  }
  const int64_t root = note(0).root;
  for (int64_t from = 0; from < size(); ++from) {
    for (int64_t to = 0; to < size(); ++to) {
      if (!has_root(call) || (call == CallKind::gather ? to : from) == root) check_pair(call, from, to);
    }
  }
}

void Heard::check_pair(CallKind call, int64_t from, int64_t to) const {
  TORCH_CHECK_VALUE(sends(from, to) == takes(to, from), name_of(call), ": rank ", from, " sends ",
                    sends(from, to), " elements to rank ", to, ", which expects ", takes(to, from));
}

Table::Table(int64_t size)
    : size_(size),
      note_(static_cast<size_t>(shm::kNoteBytes)),
      rows_(static_cast<size_t>(size * kRowBytes)),
      lengths_(static_cast<size_t>(size)),
      notes_(static_cast<size_t>(size)) {}

void Table::read(int64_t rank) {
  const std::span row(rows_.data() + rank * kRowBytes,
                      static_cast<size_t>(lengths_[static_cast<size_t>(rank)]));
  try {
    if (!read_note(row, size_, notes_[static_cast<size_t>(rank)])) throw BadNote("it is none");
  } catch (const BadNote& error) {
    throw shm::BadHeader("rank " + std::to_string(rank) + " sends a note that cannot be: " + error.what());
  }
}

Heard Table::run(shm::SharedGroup& group, CallKind call, const std::function<Prepared()>& prepare) {
  Prepared prepared;
  std::string problem;
  try {
    prepared = prepare();
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  const Terms& terms = prepared.terms;
  const int64_t bytes = write_note({.call = call,
                                    .dtype = static_cast<uint8_t>(terms.dtype),
                                    .op = terms.op,
                                    .root = static_cast<int32_t>(terms.root),
                                    .factor = terms.factor,
                                    .sends = terms.sends,
                                    .takes = terms.takes,
                                    .problem = problem,
                                    .has_input = !terms.words.empty(),
                                    .input = terms.words},
                                   note_);
  const shm::Subject subject{.mark = kNotes,
                             .words = [call] { return std::string("torch.distributed's ") + name_of(call); }};
  const Heard heard(notes_);
  KeptRefusal refusal;
  const auto agree = [&] {
    for (int64_t rank = 0; rank < size_; ++rank) read(rank);
    heard.check(call);
    return true;
  };
  move(group, prepared, subject,
       {.note = {note_.data(), static_cast<size_t>(bytes)},
        .rows = rows_.data(),
        .row_bytes = kRowBytes,
        .lengths = lengths_.data(),
        .agrees = [&] { return refusal.passes(agree); }});
  refusal.raise_if_any();
  return heard;
}

}  // namespace shardway::backend
