#include "shm/calls/header.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "shm/board/lines.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

constexpr int64_t kFetchedAhead = 4;  // lines of a payload

bool sends_anything(const Part& part, int64_t rank) {
  return std::any_of(part.pushes.begin(), part.pushes.end(),
                     [&](const Push& push) { return push.peer != rank && volume(push.extent) > 0; });
}

Path path_for(const GroupState& state, const Part& part, int64_t bytes_in_memory) {
  const int64_t bytes = volume(part.input.shape) * part.element_bytes;
  // A large input has its path even if this rank alone needs it: the ranks may share the work (run_legs).
  if (bytes < kLeastSharedReduction && !sends_anything(part, state.waiting->rank())) return Path::none;
  if (static_cast<int64_t>(part.pushes.size()) > kMaxListed) return Path::staged;
  return direct_path(state, part.input.data, bytes, bytes_in_memory).value_or(Path::staged);
}

// A longer note is read, and not hashed: both go over all of its bytes.
constexpr size_t kMostHashed = 1 << 10;

// Of bytes that mean the same on all ranks, eight at a time. Multiplying mixes upwards, and shifting brings
// what is above down again.
uint64_t hash_of(std::span<const std::byte> note) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = kOdd ^ note.size();
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= note.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, note.data() + at, 8);
    mix(word);
  }
  if (at < note.size()) {
    uint64_t rest = 0;
    std::memcpy(&rest, note.data() + at, note.size() - at);
    mix(rest);
  }
  return hash;
}

int64_t whole_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Where a payload ends according to a header, which may say anything: never beyond what there is room for.
// Each field is read once.
int64_t payload_end(const Header& header) {
  const int64_t packed_bytes = copied(header.path) == Path::packed ? copied(header.span_bytes) : 0;
  const int64_t packed = std::clamp<int64_t>(packed_bytes, 0, kInlineBytes);
  const int64_t note = std::min<int64_t>(copied(header.note.bytes), kNoteBytes);
  return note > 0 ? whole_lines(packed) + note : packed;
}

int64_t base_of(Path path, const GroupState& state, const Input& input, int64_t payload) {
  if (path == Path::packed) return payload;
  return path == Path::arena ? state.arena->offset_of(input.data) : 0;
}

// A part of a list is never packed: small tensors travel packed together, as a part of their own.
Path path_in_list(const GroupState& state, const Part& part, int64_t bytes_in_memory) {
  if (!sends_anything(part, state.waiting->rank())) return Path::none;
  return state.arena->contains(part.input.data, bytes_in_memory) ? Path::arena : Path::staged;
}

Path write_record(const GroupState& state, const Part& part, std::byte* to) {
  const Input& input = part.input;
  const int64_t bytes_in_memory = span_bytes(input.shape, input.strides, part.element_bytes);
  PartRecord record;
  record.path = path_in_list(state, part, bytes_in_memory);
  record.base = record.path == Path::arena ? state.arena->offset_of(input.data) : 0;
  record.span_bytes = bytes_in_memory;
  record.element_bytes = static_cast<uint32_t>(part.element_bytes);
  record.dims = static_cast<uint8_t>(input.shape.size());
  record.is_listed = part.lists_offsets ? 1 : 0;
  for (size_t d = 0; d < input.shape.size(); ++d)
    record.axes[d] = {.length = input.shape[d], .stride_bytes = input.strides[d]};
  std::memcpy(to, &record, offsetof(PartRecord, axes) + input.shape.size() * sizeof(Axis));
  return record.path;
}

// Writes the pushes by peer, and where those to each peer begin.
void list_pushes(const Lists& lists, const Part& part, const FixedDims& strides, int64_t ranks) {
  size_t next = 0;
  for (int64_t peer = 0; peer <= ranks; ++peer) {
    while (next < part.pushes.size() && part.pushes[next].peer < peer) {
      const Push& push = part.pushes[next];
      lists.listed()[next++] = {.offset_bytes = offset_bytes(push.from, strides),
                                .volume = volume(push.extent)};
    }
    lists.first()[peer] = static_cast<int32_t>(next);
  }
}

// Asks for the lines of a peer that the call reads next, all at once: each takes as long to come from the
// peer's cache as the others, and would be asked for only when the one before it is there.
void fetch_ahead(const GroupState& state, uint64_t number, int64_t peer) {
  const Board& board = state.waiting->board(peer);
  const Header& header = board.header(number);
  __builtin_prefetch(&header + 1);
  if (header.path == Path::inside) __builtin_prefetch(&header + 2);
  const bool reads_note = !header.note.is_alike(state.waiting->own().header(number).note);
  if (header.path != Path::packed && !reads_note) return;
  const std::byte* payload = state.small_payload(peer, number);
  for (int64_t line = 0; line < kFetchedAhead; ++line) __builtin_prefetch(payload + line * 64);
}

}  // namespace

std::optional<Path> direct_path(const GroupState& state, const std::byte* data, int64_t bytes,
                                int64_t bytes_in_memory) {
  const bool is_shared = state.arena->contains(data, bytes_in_memory);
  if (is_shared && bytes >= kArenaFromBytes && state.waiting->spins()) return Path::arena;
  if (bytes <= state.tuning.inline_bytes) return Path::packed;
  return is_shared ? std::optional(Path::arena) : std::nullopt;
}

bool is_for_all(const Part& part, int64_t rank, int64_t size) {
  const Push* first = nullptr;
  int64_t others = 0;
  for (const Push& push : part.pushes) {
    if (push.peer == rank) continue;
    if (first == nullptr) first = &push;
    if (!(push.from == first->from) || !(push.extent == first->extent)) return false;
    ++others;
  }
  // The pushes are ordered by peer, and there are as many as peers: one each, unless a peer has two.
  if (others != size - 1 || size < 3) return false;
  for (size_t i = 1; i < part.pushes.size(); ++i) {
    if (part.pushes[i].peer == part.pushes[i - 1].peer) return false;
  }
  return true;
}

Payload place_payload(GroupState& state, uint64_t number, int64_t packed_bytes, bool is_for_all,
                      std::span<const std::byte> note) {
  const auto note_bytes = static_cast<int64_t>(note.size());
  const int64_t note_offset = whole_lines(packed_bytes);
  const int64_t bytes = note_bytes > 0 ? note_offset + note_bytes : packed_bytes;
  const int64_t base = bytes > 0 ? state.place_payload(number, bytes, is_for_all) : 0;
  if (note_bytes > 0) copy_bytes(state.own_payload(number, base + note_offset), note.data(), note_bytes);
  const bool is_hashed = note.size() <= kMostHashed;  // otherwise no two ranks have the same
  return {.base = base,
          .note = {.bytes = static_cast<uint32_t>(note_bytes),
                   .base = static_cast<uint32_t>(base + note_offset),
                   .hash = is_hashed ? hash_of(note) : static_cast<uint64_t>(state.waiting->rank())}};
}

Path publish(GroupState& state, uint64_t number, const Part& part, std::span<const std::byte> note) {
  const Waiting& waiting = *state.waiting;
  const Input& input = part.input;
  const int64_t bytes_in_memory = span_bytes(input.shape, input.strides, part.element_bytes);
  const int64_t packed_bytes = volume(input.shape) * part.element_bytes;
  const Path path = path_for(state, part, bytes_in_memory);
  const bool is_packed = path == Path::packed;
  const bool is_packed_for_all = is_packed && is_for_all(part, waiting.rank(), waiting.size());
  const Payload payload = place_payload(state, number, is_packed ? packed_bytes : 0, is_packed_for_all, note);
  const FixedDims strides = is_packed ? packed_strides(input.shape, part.element_bytes) : input.strides;
  if (is_packed)
    pack_box(state.own_payload(number, payload.base), input.data, input.strides, input.shape,
             part.element_bytes);
  const Header header{.path = path,
                      .dims = static_cast<uint8_t>(input.shape.size()),
                      .for_all = static_cast<uint8_t>(path == Path::staged &&
                                                      is_for_all(part, waiting.rank(), waiting.size())),
                      .is_listed = static_cast<uint8_t>(part.pushes.size() <= kMaxListed),
                      .element_bytes = static_cast<uint32_t>(part.element_bytes),
                      .base = base_of(path, state, input, payload.base),
                      .span_bytes = is_packed ? packed_bytes : bytes_in_memory,
                      .note = payload.note};
  const Lists lists = waiting.own().lists(number, header.dims);
  std::copy(input.shape.begin(), input.shape.end(), lists.shape());
  std::copy(strides.begin(), strides.end(), lists.strides());
  if (header.is_listed != 0) list_pushes(lists, part, strides, waiting.size());
  enter(state, number, header);
  return path;
}

Few<Path> publish(GroupState& state, uint64_t number, const PartList& parts) {
  const auto bytes = static_cast<int64_t>(parts.size() * sizeof(PartRecord));
  const Payload payload = place_payload(state, number, bytes, /*is_for_all=*/false, {});
  std::byte* records = state.own_payload(number, payload.base);
  Few<Path> paths;
  for (size_t i = 0; i < parts.size(); ++i)
    paths.push_back(write_record(state, *parts[i], records + i * sizeof(PartRecord)));
  for (const Part* part : parts) {
    const Lists lists = state.waiting->own().lists(number, /*dims=*/0);
    if (part->lists_offsets) list_pushes(lists, *part, part->input.strides, state.waiting->size());
  }
  enter(state, number,
        {.path = Path::packed,
         .dims = kListOfParts,
         .is_listed = 1,
         .element_bytes = 1,
         .base = payload.base,
         .span_bytes = bytes,
         .note = payload.note});
  return paths;
}

void meet(const GroupState& state, uint64_t number) {
  Waiting& waiting = *state.waiting;
  const uint64_t mark = waiting.own().header(number).mark;
  bool is_one_call = true;
  for (int64_t step = 1; step < waiting.size(); ++step) {
    const int64_t peer = (waiting.rank() + step) % waiting.size();
    const Header& header = waiting.board(peer).header(number);
    const auto entered = waiting.board(peer).entered(number);
    // Acquire: pairs with the release in enter(). The peer's page is there, and what the peer read in the
    // last call may be overwritten. Each look asks for the next line of the page too, which the peer writes
    // first: then it comes together with the header's, and not after it.
    waiting.until(peer, [&] {
      __builtin_prefetch(&header + 1);
      return entered.load(std::memory_order_acquire) >= number;
    });
    fetch_ahead(state, number, peer);
    is_one_call &= waiting.board(peer).header(number).mark == mark;
  }
  if (!is_one_call) throw OtherCall{};
}

Sight sight_of(const GroupState& state, uint64_t number, int64_t peer) {
  const Waiting& waiting = *state.waiting;
  return {.number = number,
          .reader = waiting.rank(),
          .peer = peer,
          .board = waiting.board(peer),
          .payloads = state.payload_board(peer, number),
          .arena = waiting.peer(peer).arena()};
}

void hand_back_payload(const GroupState& state, uint64_t number) {
  if (!state.tuning.swaps || !state.tuning.hands_back) return;
  const Waiting& waiting = *state.waiting;
  const int64_t peer = 1 - waiting.rank();
  const int64_t own = payload_end(waiting.own().header(number));
  const int64_t theirs = payload_end(waiting.board(peer).header(number));
  if (theirs > own) hand_back(state.payload_board(peer, number).payload(own), theirs - own);
}

void say_read(Waiting& waiting, uint64_t number) {
  // Release: pairs with the acquire in await_reader; the tensors have been read.
  waiting.own().head().finished.store(number, std::memory_order_release);
  waiting.ring();
}

void say_combined(Waiting& waiting, uint64_t number, const Combined& combined) {
  BoardHead& head = waiting.own().head();
  // Relaxed: the release below shows them. Nobody reads those of the last call any more: all have met since.
  head.result.store(combined.base, std::memory_order_relaxed);
  head.result_path.store(combined.path, std::memory_order_relaxed);
  // Release: pairs with the acquire in await_combined; the share is written.
  head.combined.store(number, std::memory_order_release);
  waiting.ring();
}

Combined await_combined(Waiting& waiting, int64_t peer, uint64_t number) {
  const BoardHead& head = waiting.board(peer).head();
  // Acquire: pairs with the release in say_combined.
  waiting.until(peer, [&] { return head.combined.load(std::memory_order_acquire) >= number; });
  return {.path = head.result_path.load(std::memory_order_relaxed),
          .base = head.result.load(std::memory_order_relaxed)};
}

void await_reader(Waiting& waiting, int64_t peer, uint64_t number) {
  const std::atomic<uint64_t>& finished = waiting.board(peer).head().finished;
  // Acquire: pairs with the release in say_read; the tensor may change.
  waiting.until(peer, [&] { return finished.load(std::memory_order_acquire) >= number; });
}

void await_readers(Waiting& waiting, uint64_t number, const Few<Push>& pushes) {
  for (const Push& push : pushes) {
    if (push.peer != waiting.rank() && volume(push.extent) > 0) await_reader(waiting, push.peer, number);
  }
}

}  // namespace shardway::shm
