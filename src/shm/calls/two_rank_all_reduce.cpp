#include "shm/calls/two_rank_all_reduce.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "shm/calls/streams.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

// A block is combined, and copied on while it is in the nearest cache.
constexpr int64_t kBlockBytes = 4096;

}  // namespace

TwoRankAllReduce::TwoRankAllReduce(GroupState& state, const AllReduce& all_reduce)
    : waiting_(*state.waiting),
      asked_(all_reduce),
      rank_(waiting_.rank()),
      peer_(1 - rank_),
      piece_bytes_(shuttled_piece_bytes(all_reduce.bytes)),
      pieces_((all_reduce.bytes + piece_bytes_ - 1) / piece_bytes_),
      first_(waiting_.own().head().put_for_all.load(std::memory_order_relaxed)) {}

// A piece is put a turn before it is combined and collected a turn after, so that neither rank waits for the
// other as long as they go at the same pace.
void TwoRankAllReduce::run() {
  put(0);
  for (int64_t turn = 0; piece_of(turn, 0) < pieces_; ++turn) {
    put(turn + 1);
    combine(turn);
    if (turn > 0) collect(turn - 1);
  }
  collect((pieces_ - 1) / 2);
}

int64_t TwoRankAllReduce::bytes_in(int64_t piece) const {
  return std::min(piece_bytes_, asked_.bytes - piece * piece_bytes_);
}

// At most three turns lie between a slot's filling and its emptying, and a ring has at least four slots. So
// the slot is empty.
void TwoRankAllReduce::put(int64_t turn) {
  const int64_t piece = piece_of(turn, peer_);
  if (piece >= pieces_) return;
  const uint64_t number = first_ + static_cast<uint64_t>(turn);
  copy_bytes(waiting_.own().slot(rank_, number), asked_.input + piece * piece_bytes_, bytes_in(piece));
  // Release: pairs with the acquire in combine; the slot is filled.
  waiting_.own().head().put_for_all.store(number + 1, std::memory_order_release);
  ring_after_piece(waiting_, piece + 2 >= pieces_);
}

void TwoRankAllReduce::combine(int64_t turn) {
  const int64_t piece = piece_of(turn, rank_);
  if (piece >= pieces_) return;
  std::atomic<uint64_t>& taken = waiting_.own().pair(peer_).taken_of_all;
  const uint64_t number = taken.load(std::memory_order_relaxed);  // written by this rank alone
  const Board& board = waiting_.board(peer_);
  // Acquire: pairs with the release in put.
  waiting_.until(peer_, [&] { return board.head().put_for_all.load(std::memory_order_acquire) > number; });
  std::byte* slot = board.slot(peer_, number);
  const std::byte* input = asked_.input + piece * piece_bytes_;
  std::byte* output = asked_.output + piece * piece_bytes_;
  for (int64_t done = 0; done < bytes_in(piece); done += kBlockBytes) {
    const int64_t bytes = std::min(kBlockBytes, bytes_in(piece) - done);
    const std::byte* own = input + done;
    const std::byte* other = slot + done;
    const std::array addends = rank_ == 0 ? std::array{own, other} : std::array{other, own};
    reduce(slot + done, addends, bytes / bytes_of(asked_.how.element), asked_.how);
    write(output + done, slot + done, bytes);
  }
  // Release: pairs with the acquire in collect; the result is in the slot.
  taken.store(number + 1, std::memory_order_release);
  ring_after_piece(waiting_, piece + 2 >= pieces_);
}

void TwoRankAllReduce::collect(int64_t turn) {
  const int64_t piece = piece_of(turn, peer_);
  if (piece >= pieces_) return;
  const uint64_t number = first_ + static_cast<uint64_t>(turn);
  const std::atomic<uint64_t>& combined = waiting_.board(peer_).pair(rank_).taken_of_all;
  // Acquire: pairs with the release in combine.
  waiting_.until(peer_, [&] { return combined.load(std::memory_order_acquire) > number; });
  write(asked_.output + piece * piece_bytes_, waiting_.own().slot(rank_, number), bytes_in(piece));
}

void TwoRankAllReduce::write(std::byte* to, const std::byte* from, int64_t bytes) const {
  (asked_.streams() ? stream_bytes : copy_bytes)(to, from, bytes);
}

}  // namespace shardway::shm
