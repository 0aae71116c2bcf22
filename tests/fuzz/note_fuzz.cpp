// Any bytes are a note, or are refused by BadNote. The input is an honest note's fields and what a peer
// forges in it: ranks, call, listed counts, the lengths of problem and input, how much of the note came; then
// places and the numbers written there.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "backend/note.h"
#include "taker.h"

namespace shardway::backend {
namespace {

using fuzz::Taker;

// What the backend does with a note: reads every byte that it was promised.
uint64_t use(const Note& note, int64_t ranks) {
  uint64_t sum = static_cast<uint8_t>(name_of(note.call)[0]);
  int64_t elements = 0;
  for (int64_t rank = 0; rank < ranks; ++rank)
    elements += note.sends.of(rank) * 16 + note.takes.of(rank) * 16;
  if (elements < 0) std::abort();
  for (const char letter : note.problem) sum += static_cast<uint8_t>(letter);
  for (const std::byte byte : note.input) sum += static_cast<uint8_t>(byte);
  return sum;
}

// What was read is written and read again.
void check_round_trip(const Note& note, int64_t ranks) {
  std::vector<std::byte> bytes(32 << 10);
  const auto length = static_cast<size_t>(write_note(note, bytes));
  Note again;
  if (!read_note({bytes.data(), length}, ranks, again)) std::abort();
  const bool is_same = again.problem == note.problem && again.has_input == note.has_input &&
                       again.input.size() == note.input.size() && again.sends.by_rank == note.sends.by_rank &&
                       again.takes.each == note.takes.each && again.root == note.root;
  if (!is_same || use(again, ranks) != use(note, ranks)) std::abort();
}

void read_forged(Taker taker) {
  const int64_t ranks = 1 + taker.take<uint8_t>() % 8;
  const std::string problem(taker.take<uint8_t>(), 'p');
  const std::vector<std::byte> input(taker.take<uint16_t>() % 512);
  Note honest{.call = static_cast<CallKind>(taker.take<uint8_t>() % 10), .problem = problem};
  const auto lists = taker.take<uint8_t>();
  if (lists & 1) honest.sends.by_rank.assign(static_cast<size_t>(ranks), 3);
  if (lists & 2) honest.takes.by_rank.assign(static_cast<size_t>(ranks), 4);
  honest.has_input = (lists & 4) != 0;
  honest.input = input;
  std::vector<std::byte> whole(32 << 10);
  const auto length = static_cast<size_t>(write_note(honest, whole));
  const size_t came = lists & 8 ? taker.take<uint16_t>() % (length + 1) : length;
  while (!taker.is_empty()) {
    const size_t place = taker.take<uint8_t>() % 128;
    const auto number = taker.take<int64_t>();
    std::memcpy(whole.data() + place, &number, sizeof(number));
  }
  const std::unique_ptr<std::byte[]> exact(new std::byte[came]);  // a byte past its end is seen
  std::memcpy(exact.get(), whole.data(), came);
  Note note;
  if (!read_note({exact.get(), came}, ranks, note)) return;
  use(note, ranks);
  check_round_trip(note, ranks);
}

}  // namespace
}  // namespace shardway::backend

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    shardway::backend::read_forged({data, size});
  } catch (const shardway::backend::BadNote&) {  // refused with a sentence
  }
  return 0;
}
