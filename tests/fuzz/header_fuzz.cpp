// A peer's header of any bytes in shared memory: what a rank finds by it lies in the memory that is there.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "shm/calls/said.h"
#include "taker.h"

namespace {

using namespace shardway::shm;

constexpr int64_t kRanks = 3;
constexpr int64_t kArenaBytes = 1 << 12;
constexpr uint64_t kNumber = 7;

// Memory of exactly this size, so that a look past its end is seen.
struct Memory {
  BoardPlan plan{kRanks};
  std::unique_ptr<std::byte, decltype(&std::free)> board{
      static_cast<std::byte*>(std::aligned_alloc(64, static_cast<size_t>(plan.bytes()))), &std::free};
  std::vector<std::byte> section = std::vector<std::byte>(static_cast<size_t>(plan.section_bytes()));
  std::vector<std::byte> arena = std::vector<std::byte>(static_cast<size_t>(kArenaBytes));
};

volatile unsigned seen;

void look_at(const std::byte* data, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) seen = seen + std::to_integer<unsigned>(data[i]);
}

void look_at(const Source& source, const FixedDims& extent, int64_t element_bytes) {
  if (source.data == nullptr || volume(extent) == 0) return;
  FixedDims at = FixedDims::zeros(extent.size());
  for (;;) {
    look_at(source.data + offset_bytes(at, source.strides), element_bytes);
    size_t d = 0;
    for (; d < at.size() && ++at[d] == extent[d]; ++d) at[d] = 0;
    if (d == at.size()) return;
  }
}

template <class Question>
void ask(Question&& question) {
  try {
    question();
  } catch (const BadHeader&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Memory memory;
  shardway::fuzz::Taker bytes(data, size);
  const Board board(memory.board.get(), memory.section.data(), memory.plan);
  std::memset(memory.board.get(), 0, static_cast<size_t>(memory.plan.bytes()));

  // The question that this rank has, then what the peer says.
  const int64_t element_bytes = int64_t{1} << bytes.take_below(5);
  const auto dims = static_cast<size_t>(bytes.take_below(5));
  Pull pull{.peer = 1,
            .from = FixedDims::zeros(dims),
            .to = FixedDims::zeros(dims),
            .extent = FixedDims::zeros(dims)};
  for (size_t d = 0; d < dims; ++d) {
    pull.from[d] = bytes.take_below(2) == 0 ? kUnknown : bytes.take_below(100);
    pull.extent[d] = bytes.take_below(6);
  }
  const int64_t index = bytes.take_below(4);
  const Run run{.from = bytes.take_below(2) == 0 ? kUnknown : bytes.take_below(1 << 13),
                .bytes = bytes.take_below(1 << 12) * element_bytes,
                .element_bytes = element_bytes};
  const bool is_in_time = bytes.take_below(8) > 0;
  bytes.take_into(&board.header(kNumber), sizeof(Header));
  if (is_in_time) board.header(kNumber).number = kNumber;
  bytes.take_into(memory.board.get() + memory.plan.lists(kNumber), 2048);
  bytes.take_into(memory.section.data(), 3 * sizeof(PartRecord));

  const Sight sight{.number = kNumber,
                    .reader = 0,
                    .peer = 1,
                    .board = board,
                    .payloads = board,
                    .arena = {memory.arena.data(), memory.arena.size()}};
  const Header header = copied(board.header(kNumber));
  ask([&] {
    const Said said = hear(sight);
    if (volume(pull.extent) > 0)
      look_at(locate(sight, said, pull, index, element_bytes), pull.extent, element_bytes);
  });
  ask([&] {
    constexpr size_t kParts = 3;
    const Header list = hear_list(sight, kParts);
    for (size_t part = 0; part < kParts; ++part) {
      const Said said = hear_part(sight, list, part);
      if (volume(pull.extent) > 0)
        look_at(locate(sight, said, pull, 0, element_bytes), pull.extent, element_bytes);
    }
  });
  ask([&] {
    if (const std::byte* found = find_run(sight, header, run)) look_at(found, run.bytes);
  });
  ask([&] {
    if (const std::byte* found = find_input(sight, header)) look_at(found, header.span_bytes);
  });
  ask([&] {
    const auto note = find_note(sight, header, kNoteBytes);
    look_at(note.data(), static_cast<int64_t>(note.size()));
  });
  return 0;
}
