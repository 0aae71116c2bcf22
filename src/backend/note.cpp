#include "backend/note.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace shardway::backend {
namespace {

constexpr uint64_t kMagic = 0x7368617264776179;  // no other room's note begins so

// An input of up to this many bytes rides with the note: two copies more, against one meeting less.
constexpr int64_t kMostInputBytes = 16 << 10;
constexpr int64_t kMostProblemBytes = 1024;
constexpr int64_t kListed = -1;

constexpr uint64_t kNotes = shm::mark_of("torch.distributed");

// Behind it: the counts that are listed, the problem, and from the next multiple of 64 on the input.
struct Head {
  uint64_t magic = kMagic;
  Call call = Call::barrier;
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t has_input = 0;
  int32_t root = -1;
  double factor = 1;
  int64_t sends = 0;
  int64_t takes = 0;
  int64_t input_bytes = 0;
  int64_t problem_bytes = 0;
};

Head head_at(const std::byte* row) {
  Head head;
  std::memcpy(&head, row, sizeof(Head));
  return head;
}

int64_t lists_bytes(const Head& head, int64_t size) {
  return ((head.sends == kListed ? size : 0) + (head.takes == kListed ? size : 0)) * int64_t{sizeof(int64_t)};
}

int64_t input_offset(const Head& head, int64_t size) {
  return (int64_t{sizeof(Head)} + lists_bytes(head, size) + head.problem_bytes + 63) / 64 * 64;
}

int64_t listed(const std::byte* row, int64_t index) {
  int64_t count = 0;
  std::memcpy(&count, row + sizeof(Head) + index * int64_t{sizeof(count)}, sizeof(count));
  return count;
}

bool has_root(Call call) {
  return call == Call::broadcast || call == Call::reduce || call == Call::gather || call == Call::scatter;
}

// All ranks have a tensor of one size.
bool is_of_one_size(Call call) {
  return call == Call::all_reduce || call == Call::broadcast || call == Call::reduce;
}

const char* name_of_op(uint8_t op) {
  constexpr std::array kNames = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  return op < kNames.size() ? kNames[op] : "none";
}

std::string dtype_name(uint8_t dtype) {
  return std::string(c10::getDtypeNames(static_cast<at::ScalarType>(dtype)).first);
}

template <class A, class B>
[[noreturn]] void disagree(Call call, const char* what, const A& first, const B& other, int64_t rank) {
  TORCH_CHECK_VALUE(false, name_of(call), ": ranks disagree on ", what, ": ", first, " on rank 0, ", other,
                    " on rank ", rank);
}

}  // namespace

const char* name_of(Call call) {
  constexpr std::array kNames = {
      "all_reduce", "broadcast",      "reduce",     "all_gather",        "gather",
      "scatter",    "reduce_scatter", "all_to_all", "sparse_all_reduce", "barrier"};
  return kNames.at(static_cast<size_t>(call));
}

int64_t Heard::sends(int64_t from, int64_t to) const {
  const Head head = head_at(row(from));
  return head.sends == kListed ? listed(row(from), to) : head.sends;
}

int64_t Heard::takes(int64_t at, int64_t from) const {
  const Head head = head_at(row(at));
  return head.takes == kListed ? listed(row(at), (head.sends == kListed ? size_ : 0) + from) : head.takes;
}

bool Heard::has_inputs() const {
  for (int64_t rank = 0; rank < size_; ++rank) {
    if (head_at(row(rank)).has_input == 0) return false;
  }
  return true;
}

const std::byte* Heard::input(int64_t rank) const {
  return row(rank) + input_offset(head_at(row(rank)), size_);
}

std::string Heard::problem(int64_t rank) const {
  const Head head = head_at(row(rank));
  const auto* text = reinterpret_cast<const char*>(row(rank) + sizeof(Head) + lists_bytes(head, size_));
  return {text, static_cast<size_t>(head.problem_bytes)};
}

void Heard::check(Call call) const {
  for (int64_t rank = 0; rank < size_; ++rank) {
    const Head head = head_at(row(rank));
    TORCH_CHECK_VALUE(head.magic == kMagic && head.call <= Call::barrier, name_of(call), ": rank ", rank,
                      " is in a call of shardway's own instead");
    TORCH_CHECK_VALUE(head.problem_bytes == 0, name_of(head.call), ": ", problem(rank), " (rank ", rank, ")");
  }
  for (int64_t rank = 1; rank < size_; ++rank) check_terms(call, rank);
  check_counts(call);
}

void Heard::check_terms(Call call, int64_t rank) const {
  const Head first = head_at(row(0));
  const Head other = head_at(row(rank));
  if (other.call != first.call) disagree(call, "the call", name_of(first.call), name_of(other.call), rank);
  if (other.dtype != first.dtype)
    disagree(call, "dtype", dtype_name(first.dtype), dtype_name(other.dtype), rank);
  if (other.op != first.op) disagree(call, "op", name_of_op(first.op), name_of_op(other.op), rank);
  if (other.factor != first.factor) disagree(call, "the factor", first.factor, other.factor, rank);
  if (other.root != first.root) disagree(call, "the root", first.root, other.root, rank);
}

bool Heard::are_counts_alike() const {
  const Head first = head_at(row(0));
  for (int64_t rank = 0; rank < size_; ++rank) {
    const Head head = head_at(row(rank));
    if (head.sends == kListed || head.sends != first.sends || head.takes != first.sends) return false;
  }
  return true;
}

void Heard::check_counts(Call call) const {
  if (are_counts_alike()) return;
  if (is_of_one_size(call)) {
    for (int64_t rank = 1; rank < size_; ++rank) {
      if (sends(rank, 0) != sends(0, 0))
        disagree(call, "the number of elements", sends(0, 0), sends(rank, 0), rank);
    }
    return;
  }
  const int64_t root = head_at(row(0)).root;
  for (int64_t from = 0; from < size_; ++from) {
    for (int64_t to = 0; to < size_; ++to) {
      if (!has_root(call) || (call == Call::gather ? to : from) == root) check_pair(call, from, to);
    }
  }
}

void Heard::check_pair(Call call, int64_t from, int64_t to) const {
  TORCH_CHECK_VALUE(sends(from, to) == takes(to, from), name_of(call), ": rank ", from, " sends ",
                    sends(from, to), " elements to rank ", to, ", which expects ", takes(to, from));
}

Table::Table(int64_t size)
    : size_(size),
      note_(static_cast<size_t>(shm::kNoteBytes)),
      rows_(static_cast<size_t>(size * (shm::kNoteBytes + 64))) {}

// Gives the note's length.
int64_t Table::write(Call call, const Terms& terms, const std::string& problem) {
  Head head{.call = call,
            .dtype = static_cast<uint8_t>(terms.dtype),
            .op = terms.op,
            .root = static_cast<int32_t>(terms.root),
            .factor = terms.factor,
            .sends = terms.sends.by_rank.empty() ? terms.sends.each : kListed,
            .takes = terms.takes.by_rank.empty() ? terms.takes.each : kListed,
            .problem_bytes = static_cast<int64_t>(problem.size())};
  std::byte* next = note_.data() + sizeof(Head);
  for (const Counts* counts : {&terms.sends, &terms.takes}) {
    const size_t bytes = counts->by_rank.size() * sizeof(int64_t);
    if (bytes > 0) std::memcpy(next, counts->by_rank.data(), bytes);
    next += bytes;
  }
  if (!problem.empty()) std::memcpy(next, problem.data(), problem.size());
  const int64_t offset = input_offset(head, size_);
  const auto bytes = static_cast<int64_t>(terms.input.size());
  if (bytes <= std::min(kMostInputBytes, shm::kNoteBytes - offset)) {
    head.has_input = 1;
    head.input_bytes = bytes;
    if (bytes > 0) std::memcpy(note_.data() + offset, terms.input.data(), terms.input.size());
  }
  std::memcpy(note_.data(), &head, sizeof(Head));
  return offset + head.input_bytes;
}

Heard Table::agree(shm::Group& group, Call call, const std::function<Terms()>& prepare) {
  Terms terms;
  std::string problem;
  try {
    terms = prepare();
  } catch (const c10::Error& error) {
    problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty()) terms = {};
  problem.resize(std::min(problem.size(), static_cast<size_t>(kMostProblemBytes)));
  const int64_t bytes = write(call, terms, problem);
  const int64_t row_bytes = shm::kNoteBytes + 64;
  const shm::Subject subject{.mark = kNotes,
                             .words = [call] { return std::string("torch.distributed's ") + name_of(call); }};
  group.gather_notes({note_.data(), static_cast<size_t>(bytes)}, rows_.data(), row_bytes, subject);
  const Heard heard(rows_.data(), size_, row_bytes);
  heard.check(call);
  return heard;
}

}  // namespace shardway::backend
