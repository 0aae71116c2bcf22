#include "backend/note.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace shardway::backend {
namespace {

constexpr uint64_t kMagic = 0x7368617264776179;  // no other room's note begins so
constexpr int64_t kListed = -1;

// Behind it: the counts that are listed, the problem, and from the next multiple of 64 on the input.
struct NoteHead {
  uint64_t magic = kMagic;
  CallKind call = CallKind::barrier;
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

constexpr int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Takes what is written one behind the other.
class NoteReader {
 public:
  NoteReader(std::span<const std::byte> bytes, int64_t begin) : bytes_(bytes), next_(begin) {}

  std::span<const std::byte> take(int64_t bytes, int64_t limit, const char* what) {
    const auto left = static_cast<int64_t>(bytes_.size()) - next_;
    if (bytes < 0 || bytes > std::min(limit, left))
      throw BadNote("it has " + std::to_string(bytes) + " bytes of " + what);
    const auto taken = bytes_.subspan(static_cast<size_t>(next_), static_cast<size_t>(bytes));
    next_ += bytes;
    return taken;
  }

  void align() { next_ = std::min(round_up(next_), static_cast<int64_t>(bytes_.size())); }

 private:
  std::span<const std::byte> bytes_;
  int64_t next_;
};

void check_count(int64_t count) {
  if (count < 0 || count > kMostElements) throw BadNote("it counts " + std::to_string(count) + " elements");
}

void read_counts(NoteReader& reader, int64_t said, int64_t ranks, Counts& counts) {
  counts.each = 0;
  counts.by_rank.clear();
  if (said != kListed) {
    check_count(said);
    counts.each = said;
    return;
  }
  const int64_t bytes = ranks * int64_t{sizeof(int64_t)};
  const auto listed = reader.take(bytes, bytes, "counts");
  counts.by_rank.resize(static_cast<size_t>(ranks));
  std::memcpy(counts.by_rank.data(), listed.data(), listed.size());
  for (const int64_t count : counts.by_rank) check_count(count);
}

}  // namespace

const char* name_of(CallKind call) {
  constexpr std::array kNames = {
      "all_reduce", "broadcast",      "reduce",     "all_gather",        "gather",
      "scatter",    "reduce_scatter", "all_to_all", "sparse_all_reduce", "barrier"};
  return kNames.at(static_cast<size_t>(call));
}

int64_t write_note(const Note& note, std::span<std::byte> to) {
  NoteHead head{.call = note.call,
                .dtype = note.dtype,
                .op = note.op,
                .root = note.root,
                .factor = note.factor,
                .sends = note.sends.by_rank.empty() ? note.sends.each : kListed,
                .takes = note.takes.by_rank.empty() ? note.takes.each : kListed,
                .problem_bytes = std::min(kMostProblemBytes, static_cast<int64_t>(note.problem.size()))};
  std::byte* next = to.data() + sizeof(NoteHead);
  for (const Counts* counts : {&note.sends, &note.takes}) {
    const size_t bytes = counts->by_rank.size() * sizeof(int64_t);
    if (bytes > 0) std::memcpy(next, counts->by_rank.data(), bytes);
    next += bytes;
  }
  if (head.problem_bytes > 0) std::memcpy(next, note.problem.data(), static_cast<size_t>(head.problem_bytes));
  const int64_t end = next - to.data() + head.problem_bytes;
  const int64_t input_at = round_up(end);
  const auto input_bytes = static_cast<int64_t>(note.input.size());
  if (note.has_input &&
      input_bytes <= std::min(kMostInputBytes, static_cast<int64_t>(to.size()) - input_at)) {
    head.has_input = 1;
    head.input_bytes = input_bytes;
    if (input_bytes > 0) std::memcpy(to.data() + input_at, note.input.data(), note.input.size());
  }
  std::memcpy(to.data(), &head, sizeof(NoteHead));
  return head.input_bytes > 0 ? input_at + head.input_bytes : end;
}

bool read_note(std::span<const std::byte> bytes, int64_t ranks, Note& note) {
  NoteHead head;
  if (bytes.size() < sizeof(NoteHead)) return false;
  std::memcpy(&head, bytes.data(), sizeof(NoteHead));
  if (head.magic != kMagic) return false;
  if (head.call > CallKind::barrier || head.has_input > 1) throw BadNote("it names no call");
  note.call = head.call;
  note.dtype = head.dtype;
  note.op = head.op;
  note.root = head.root;
  note.factor = head.factor;
  note.has_input = head.has_input == 1;
  NoteReader reader(bytes, sizeof(NoteHead));
  read_counts(reader, head.sends, ranks, note.sends);
  read_counts(reader, head.takes, ranks, note.takes);
  const auto problem = reader.take(head.problem_bytes, kMostProblemBytes, "text");
  note.problem = {reinterpret_cast<const char*>(problem.data()), problem.size()};
  reader.align();
  note.input = reader.take(note.has_input ? head.input_bytes : 0, kMostInputBytes, "input");
  return true;
}

}  // namespace shardway::backend
