#include "shm/calls/streams.h"

#include <algorithm>

#include "shm/board/lines.h"
#include "shm/calls/header.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

std::vector<BoxSize> box_sizes_of(const std::vector<SentBox>& sent) {
  std::vector<BoxSize> sizes;
  sizes.reserve(sent.size());
  for (const SentBox& one : sent)
    sizes.push_back({.extent = one.push->extent, .element_bytes = one.part->element_bytes});
  return sizes;
}

std::vector<BoxSize> box_sizes_of(const std::vector<AwaitedBox>& awaited) {
  std::vector<BoxSize> sizes;
  sizes.reserve(awaited.size());
  for (const AwaitedBox& one : awaited) sizes.push_back(one.size);
  return sizes;
}

std::vector<int64_t> everybody_but(int64_t rank, int64_t size) {
  std::vector<int64_t> others;
  for (int64_t peer = 0; peer < size; ++peer) {
    if (peer != rank) others.push_back(peer);
  }
  return others;
}

std::atomic<uint64_t>& filled_by(const Board& board, bool for_all, int64_t reader) {
  return for_all ? board.head().put_for_all : board.pair(reader).put;
}

std::atomic<uint64_t>& taken_by(const Board& board, bool for_all, int64_t writer) {
  return for_all ? board.pair(writer).taken_of_all : board.pair(writer).taken;
}

}  // namespace

void ring_after_piece(const Waiting& waiting, bool is_last) {
  if (is_last) {
    waiting.ring();
  } else {
    waiting.ring_in_passing();
  }
}

Cursor::Cursor(std::vector<BoxSize> boxes, int64_t slot_bytes)
    : boxes_(std::move(boxes)), slot_bytes_(slot_bytes) {
  skip_empty();
}

void Cursor::skip_empty() {
  for (; box_ < boxes_.size(); ++box_) {
    pieces_ = pieces_of(boxes_[box_]);
    piece_ = 0;
    if (pieces_.count() > 0) return;
  }
}

int64_t Cursor::count() const {
  int64_t count = 0;
  for (const BoxSize& box : boxes_) count += pieces_of(box).count();
  return count;
}

Pieces Cursor::pieces_of(const BoxSize& box) const {
  const int64_t bytes = volume(box.extent) * box.element_bytes;
  return {box.extent, box.element_bytes, shm::piece_bytes(bytes, slot_bytes_)};
}

void Cursor::advance() {
  ++number_;
  if (++piece_ < pieces_.count()) return;
  ++box_;
  skip_empty();
}

Outgoing::Outgoing(Waiting& waiting, std::vector<SentBox> sent, bool for_all, const std::optional<Swap>& swap)
    : waiting_(waiting),
      sent_(std::move(sent)),
      readers_(for_all ? everybody_but(waiting.rank(), waiting.size())
                       : std::vector{sent_.front().push->peer}),
      ring_(for_all ? waiting.rank() : readers_.front()),
      filled_(filled_by(waiting.own(), for_all, readers_.front())),
      for_all_(for_all),
      swap_(swap),
      slots_(swap ? 2 * kSwapTurns : waiting.own().plan().slots()),
      taken_before_(taken_by(waiting.own(), for_all, readers_.front()).load(std::memory_order_relaxed)),
      cursor_(box_sizes_of(sent_), most_piece_bytes(waiting, swap)) {}

bool Outgoing::has_room() const {
  return has_emptied_slot() &&
         std::none_of(readers_.begin(), readers_.end(), [this](int64_t reader) { return holds_up(reader); });
}

// If slots are swapped, the next piece goes where a piece of the reader lay, if there was one: this rank must
// have taken that piece.
bool Outgoing::has_emptied_slot() const {
  if (!swap_) return true;
  const std::atomic<uint64_t>& taken = taken_by(waiting_.own(), for_all_, readers_.front());  // by this rank
  const auto in_this_call = static_cast<int64_t>(taken.load(std::memory_order_relaxed) - taken_before_);
  return in_this_call >= std::min(expected_, cursor_.number() - kSwapTurns + 1);
}

bool Outgoing::holds_up(int64_t reader) const {
  const uint64_t filled = filled_.load(std::memory_order_relaxed);  // written by this rank alone
  // Acquire: pairs with the release in Incoming::done; the reader has read the slot.
  const uint64_t taken =
      taken_by(waiting_.board(reader), for_all_, waiting_.rank()).load(std::memory_order_acquire);
  return filled - taken >= static_cast<uint64_t>(slots_);
}

void Outgoing::add_blockers(std::vector<int64_t>& peers) const {
  for (const int64_t reader : readers_) {
    if (holds_up(reader)) peers.push_back(reader);
  }
}

void Outgoing::fill(std::byte* slot, const Piece& piece) const {
  const SentBox& sent = sent_[cursor_.box()];
  const Input& input = sent.part->input;
  const int64_t element = sent.part->element_bytes;
  const std::byte* from =
      input.data + offset_bytes(sent.push->from, input.strides) + offset_bytes(piece.offset, input.strides);
  if (!also_) return pack_box(slot, from, input.strides, piece.extent, element);
  std::byte* also_to = at(*also_, piece.offset);
  if (is_packed(piece.extent, input.strides, element) && is_packed(piece.extent, also_->strides, element))
    return copy_twice(slot, also_to, from, volume(piece.extent) * element);
  pack_box(slot, from, input.strides, piece.extent, element);
  copy_box(also_to, also_->strides, from, input.strides, piece.extent, element);
}

void Outgoing::put() {
  const uint64_t filled = filled_.load(std::memory_order_relaxed);
  fill(swap_ ? swap_->slot(waiting_.rank(), cursor_.number()) : waiting_.own().slot(ring_, filled),
       cursor_.piece());
  // Release: pairs with the acquire in Incoming::is_available; the slot is filled.
  filled_.store(filled + 1, std::memory_order_release);
  cursor_.advance();
  ring_after_piece(waiting_, is_done());
}

Incoming::Incoming(Waiting& waiting, int64_t peer, bool for_all, std::vector<AwaitedBox> awaited,
                   int64_t whole_bytes, bool hands_back, const std::optional<Swap>& swap)
    : waiting_(waiting),
      peer_(peer),
      ring_(for_all ? peer : waiting.rank()),
      filled_(filled_by(waiting.board(peer), for_all, waiting.rank())),
      taken_(taken_by(waiting.own(), for_all, peer)),
      awaited_(std::move(awaited)),
      whole_bytes_(whole_bytes),
      for_all_(for_all),
      hands_back_(hands_back),
      swap_(swap),
      cursor_(box_sizes_of(awaited_), most_piece_bytes(waiting, swap)) {}

bool Incoming::is_available() const {
  // Acquire: pairs with the release in Outgoing::put. `taken_` is written by this rank alone.
  return filled_.load(std::memory_order_acquire) > taken_.load(std::memory_order_relaxed);
}

const std::byte* Incoming::slot() const {
  if (swap_) return swap_->slot(peer_, cursor_.number());
  return waiting_.board(peer_).slot(ring_, taken_.load(std::memory_order_relaxed));
}

void Incoming::take() {
  const Piece piece = cursor_.piece();
  const Place& place = awaited_[cursor_.box()].place;
  const int64_t element = cursor_.element_bytes();
  copy_box(at(place, piece.offset), place.strides, slot(), packed_strides(piece.extent, element),
           piece.extent, element, whole_bytes_);
  done();
}

// Whether every other reader of the slot has read it. Two readers that finish at the same time may both miss
// that they are the last.
bool Incoming::is_last_reader() const {
  const uint64_t number = taken_.load(std::memory_order_relaxed);
  for (int64_t reader = 0; for_all_ && reader < waiting_.size(); ++reader) {
    if (reader == peer_ || reader == waiting_.rank()) continue;
    // Acquire: pairs with the release in done; the other has read the slot.
    if (taken_by(waiting_.board(reader), true, peer_).load(std::memory_order_acquire) <= number) return false;
  }
  return true;
}

void Incoming::hand_back_rest() {
  const int64_t bytes = cursor_.piece_bytes();
  const int64_t answer = (cursor_.number() + kSwapTurns) % turns_;  // in this call or the next like it
  const int64_t answered = answer < answers_ ? std::min(bytes, answer_bytes_) : 0;
  hand_back(slot() + answered, bytes - answered);
}

void Incoming::done() {
  if (hands_back_ && is_last_reader()) hand_back_rest();
  // Release: pairs with the acquire in Outgoing::holds_up; the slot has been read.
  taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  cursor_.advance();
  ring_after_piece(waiting_, is_done());
}

}  // namespace shardway::shm
