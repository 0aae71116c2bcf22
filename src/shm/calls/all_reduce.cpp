#include "shm/calls/all_reduce.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "shm/board/lines.h"
#include "shm/calls/header.h"
#include "shm/calls/streams.h"
#include "shm/calls/two_rank_all_reduce.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

constexpr int64_t kLineBytes = 64;

// What the ranks combine, and how. In the header it stands in place of the bytes of an element, which are
// always fewer.
uint32_t mark_of(const Combine& how) {
  return uint32_t{1} << 16 | static_cast<uint32_t>(how.op) << 8 | static_cast<uint32_t>(how.element);
}

struct Share {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Nearly equal shares that begin at cache lines.
Share share_at(int64_t bytes, int64_t rank, int64_t size) {
  const int64_t lines = (bytes + kLineBytes - 1) / kLineBytes;
  const int64_t begin = std::min(bytes, lines * rank / size * kLineBytes);
  const int64_t end = std::min(bytes, lines * (rank + 1) / size * kLineBytes);
  return {.begin = begin, .bytes = end - begin};
}

// The largest input that lies beside the header.
int64_t most_beside_header(const GroupState& state) {
  return state.tuning.shuttles ? std::min(kShuttleFromBytes, state.tuning.inline_bytes)
                               : state.tuning.inline_bytes;
}

Header header_at(const Sight& sight, const AllReduce& all_reduce) {
  const Header header = copied(sight.board.header(sight.number));
  if (header.number != sight.number || header.element_bytes != mark_of(all_reduce.how))
    refuse_header(sight.peer, "is in another collective");
  if (header.span_bytes != all_reduce.bytes)
    refuse_header(sight.peer, "combines " + std::to_string(header.span_bytes) + " bytes where " +
                                  std::to_string(all_reduce.bytes) + " are expected");
  const bool is_inside = header.span_bytes <= kInsideBytes;
  if (is_inside != (header.path == Path::inside)) refuse_header(sight.peer, "has an invalid header");
  return header;
}

}  // namespace

bool is_for_everybody(const GroupState& state, const AllReduce& all_reduce) {
  return state.waiting->size() <= kRanksOfPasses ||
         all_reduce.bytes <= std::min(kMostForEverybody, state.tuning.inline_bytes);
}

ContiguousCall share_of(const AllReduce& all_reduce, int64_t rank, int64_t size) {
  const Share own = share_at(all_reduce.bytes, rank, size);
  ContiguousCall call{.element_bytes = bytes_of(all_reduce.how.element),
                      .input = all_reduce.input,
                      .input_bytes = all_reduce.bytes,
                      .output = all_reduce.output + own.begin};
  call.combine = all_reduce.how;
  for (int64_t peer = 0; peer < size; ++peer) {
    const Share theirs = share_at(all_reduce.bytes, peer, size);
    call.sends.push_back({.begin = theirs.begin, .bytes = theirs.bytes});
    call.takes.push_back({.from = own.begin, .to = 0, .bytes = own.bytes});
  }
  return call;
}

ContiguousCall collection_of(const AllReduce& all_reduce, int64_t rank, int64_t size) {
  const Share own = share_at(all_reduce.bytes, rank, size);
  ContiguousCall call{
      .input = all_reduce.output + own.begin, .input_bytes = own.bytes, .output = all_reduce.output};
  for (int64_t peer = 0; peer < size; ++peer) {
    const Share theirs = share_at(all_reduce.bytes, peer, size);
    call.sends.push_back({.begin = 0, .bytes = peer == rank ? 0 : own.bytes});
    call.takes.push_back({.from = 0, .to = theirs.begin, .bytes = peer == rank ? 0 : theirs.bytes});
  }
  return call;
}

AllReduceCall::AllReduceCall(GroupState& state, uint64_t number, const AllReduce& all_reduce)
    : state_(state),
      waiting_(*state.waiting),
      number_(number),
      asked_(all_reduce),
      piece_bytes_(all_reduce.bytes <= most_beside_header(state)
                       ? all_reduce.bytes
                       : piece_bytes(all_reduce.bytes, slot_bytes(waiting_.size()))),
      pieces_(all_reduce.bytes == 0 ? 0 : (all_reduce.bytes + piece_bytes_ - 1) / piece_bytes_) {}

// A piece is put before it is combined, because combining may overwrite it. It is put one piece ahead, so
// that nobody waits for it.
void AllReduceCall::finish() {
  hear_everybody();
  if (path_ == Path::inside) return combine_inside();
  if (is_shuttled()) return TwoRankAllReduce(state_, asked_).run();
  put(0);
  for (int64_t piece = 0; piece < pieces_; ++piece) {
    put(piece + 1);
    combine(piece);
  }
  leave();
}

Path AllReduceCall::path_for() const {
  if (asked_.bytes <= kInsideBytes) return Path::inside;
  const bool is_small = asked_.bytes <= most_beside_header(state_);
  const Path copied = is_small ? Path::packed : Path::staged;
  if (asked_.is_in_place()) return copied;
  const auto direct = direct_path(state_, asked_.input, asked_.bytes, asked_.bytes);
  return direct == Path::arena ? Path::arena : copied;
}

bool AllReduceCall::is_shuttled() const {
  const int64_t peer = 1 - waiting_.rank();
  return state_.tuning.shuttles && path_ == Path::staged && paths_[static_cast<size_t>(peer)] == Path::staged;
}

void AllReduceCall::publish(std::span<const std::byte> note) {
  path_ = path_for();
  Payload payload =
      place_payload(state_, number_, path_ == Path::packed ? asked_.bytes : 0, /*is_for_all=*/true, note);
  if (path_ == Path::packed) {
    copy_bytes(state_.own_payload(number_, payload.base), asked_.input, asked_.bytes);
  } else if (path_ == Path::arena) {
    payload.base = state_.arena->offset_of(asked_.input);
  } else {
    payload.base = 0;
  }
  Header header{.path = path_,
                .for_all = 1,
                .element_bytes = mark_of(asked_.how),
                .base = payload.base,
                .span_bytes = asked_.bytes,
                .note = payload.note};
  if (path_ == Path::inside) put_inside(state_, number_, asked_.input, asked_.bytes, header);
  enter(state_, number_, header);
}

void AllReduceCall::hear_everybody() {
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    if (peer == waiting_.rank()) {
      inputs_.push_back(asked_.input);
      paths_.push_back(Path::none);
      continue;
    }
    const Sight sight = sight_of(state_, number_, peer);
    const Header header = header_at(sight, asked_);
    inputs_.push_back(find_input(sight, header));
    paths_.push_back(header.path);
  }
}

// No rank waits for the readers of its page: they are done before it is written again.
void AllReduceCall::combine_inside() const {
  const int64_t count = asked_.bytes / bytes_of(asked_.how.element);
  if (count > 0) reduce(asked_.output, {inputs_.data(), inputs_.size()}, count, asked_.how);
}

int64_t AllReduceCall::bytes_in(int64_t piece) const {
  return std::min(piece_bytes_, asked_.bytes - piece * piece_bytes_);
}

void AllReduceCall::put(int64_t piece) {
  if (path_ != Path::staged || piece >= pieces_) return;
  const int64_t rank = waiting_.rank();
  std::atomic<uint64_t>& filled = waiting_.own().head().put_for_all;
  const uint64_t number = filled.load(std::memory_order_relaxed);  // written by this rank alone
  const auto slots = static_cast<uint64_t>(waiting_.own().plan().slots());
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    if (peer == rank) continue;
    const std::atomic<uint64_t>& taken = waiting_.board(peer).pair(rank).taken_of_all;
    // Acquire: pairs with the release in give_back; the reader has read the slot.
    waiting_.until(peer, [&] { return number - taken.load(std::memory_order_acquire) < slots; });
  }
  copy_bytes(waiting_.own().slot(rank, number), asked_.input + piece * piece_bytes_, bytes_in(piece));
  // Release: pairs with the acquire in in_slot; the slot is filled.
  filled.store(number + 1, std::memory_order_release);
  ring_after_piece(waiting_, piece + 1 == pieces_);
}

const std::byte* AllReduceCall::in_slot(int64_t peer) {
  const Board& board = waiting_.board(peer);
  const uint64_t number = waiting_.own().pair(peer).taken_of_all.load(std::memory_order_relaxed);  // own
  // Acquire: pairs with the release in put.
  waiting_.until(peer, [&] { return board.head().put_for_all.load(std::memory_order_acquire) > number; });
  return board.slot(peer, number);
}

void AllReduceCall::combine(int64_t piece) {
  const int64_t begin = piece * piece_bytes_;
  addends_.clear();
  for (size_t peer = 0; peer < inputs_.size(); ++peer)
    addends_.push_back(inputs_[peer] == nullptr ? in_slot(static_cast<int64_t>(peer))
                                                : inputs_[peer] + begin);
  reduce(asked_.output + begin, {addends_.data(), addends_.size()},
         bytes_in(piece) / bytes_of(asked_.how.element), asked_.how, asked_.bytes);
  give_back(piece);
}

// Among three ranks or more nothing is handed back: what one has read another may still be reading.
void AllReduceCall::give_back(int64_t piece) {
  bool has_slots = false;
  for (size_t peer = 0; peer < paths_.size(); ++peer) {
    const bool is_in_slot = paths_[peer] == Path::staged;
    if (state_.tuning.hands_back && paths_.size() == 2 && is_in_slot)
      hand_back(addends_[peer], bytes_in(piece));
    if (!is_in_slot) continue;
    has_slots = true;
    std::atomic<uint64_t>& taken = waiting_.own().pair(static_cast<int64_t>(peer)).taken_of_all;
    // Release: pairs with the acquire in put; the slot has been read, and handed back.
    taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  if (has_slots) ring_after_piece(waiting_, piece + 1 == pieces_);
}

void AllReduceCall::leave() {
  Few<int64_t> owners;
  for (size_t peer = 0; peer < paths_.size(); ++peer) {
    if (paths_[peer] == Path::arena) owners.push_back(static_cast<int64_t>(peer));
  }
  waiting_.check_owners(owners);
  if (!owners.empty()) say_read(waiting_, number_);
  if (path_ != Path::arena) return;
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    if (peer != waiting_.rank()) await_reader(waiting_, peer, number_);
  }
}

}  // namespace shardway::shm
