// Boxes that travel through rings of slots. The writer packs pieces into slots of its section of the group's
// memory; two ranks that swap take turns with their slots (swap.h). The reader takes the pieces out. Between
// a writer and a reader two counters grow: slots filled, and slots emptied. No rank waits for a third.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/board/pieces.h"
#include "shm/board/swap.h"
#include "shm/board/tuning.h"
#include "shm/board/waiting.h"
#include "shm/calls/part.h"

namespace shardway::shm {

// Rings after a slot was filled or emptied. Only the last slot of a collective must be heard at once.
void ring_after_piece(const Waiting& waiting, bool is_last);

// The largest size of a piece.
inline int64_t most_piece_bytes(const Waiting& waiting, const std::optional<Swap>& swap) {
  return swap ? kSwappedBytes : slot_bytes(waiting.size());
}

// A box in memory: of the input, of the output, or of a buffer aside.
struct Place {
  std::byte* data = nullptr;
  FixedDims strides = {};
};

inline std::byte* at(const Place& place, const FixedDims& offset) {
  return place.data + offset_bytes(offset, place.strides);
}

// How much a box holds.
struct BoxSize {
  FixedDims extent = {};
  int64_t element_bytes = 1;
};

// The pieces of several boxes, one after the other.
class Cursor {
 public:
  Cursor(std::vector<BoxSize> boxes, int64_t slot_bytes);

  bool is_done() const { return box_ == boxes_.size(); }
  size_t box() const { return box_; }
  Piece piece() const { return pieces_[piece_]; }
  int64_t element_bytes() const { return boxes_[box_].element_bytes; }
  int64_t piece_bytes() const { return volume(piece().extent) * element_bytes(); }
  void advance();

  int64_t count() const;                      // of the pieces of all boxes
  int64_t number() const { return number_; }  // of this one among them

 private:
  void skip_empty();
  Pieces pieces_of(const BoxSize& box) const;

  std::vector<BoxSize> boxes_;
  int64_t slot_bytes_;
  size_t box_ = 0;
  Pieces pieces_{FixedDims::zeros(1), 1, 1};
  int64_t piece_ = 0;
  int64_t number_ = 0;
};

// A push of one of the parts of a call.
struct SentBox {
  const Part* part = nullptr;
  const Push* push = nullptr;
};

// What this rank puts into one of its rings: for one peer, or for all of them.
class Outgoing {
 public:
  Outgoing(Waiting& waiting, std::vector<SentBox> sent, bool for_all, const std::optional<Swap>& swap);

  // If slots are swapped: how many pieces come from the reader meanwhile.
  void expect(int64_t pieces) { expected_ = pieces; }
  int64_t pieces() const { return cursor_.count(); }
  int64_t piece_bytes() const { return cursor_.piece_bytes(); }  // of the next

  // Every piece also goes to its place in this rank's own output, which holds the same box.
  void put_also_at(const Place& place) { also_ = place; }

  bool is_done() const { return cursor_.is_done(); }
  const Push* only_push() const { return sent_.size() == 1 ? sent_.front().push : nullptr; }
  bool has_room() const;
  void add_blockers(std::vector<int64_t>& peers) const;  // the readers that have not emptied the next slot
  void put();

 private:
  bool holds_up(int64_t reader) const;
  bool has_emptied_slot() const;
  void fill(std::byte* slot, const Piece& piece) const;

  Waiting& waiting_;
  std::vector<SentBox> sent_;
  std::vector<int64_t> readers_;
  int64_t ring_;
  std::atomic<uint64_t>& filled_;
  bool for_all_;
  std::optional<Swap> swap_;
  int64_t slots_;
  uint64_t taken_before_;  // pieces taken from the reader in earlier calls
  int64_t expected_ = 0;
  std::optional<Place> also_ = std::nullopt;
  Cursor cursor_;
};

// A pull of one of the parts of a call, and where its bytes are put.
struct AwaitedBox {
  BoxSize size = {};
  Place place = {};
  // The sum whose addend it is, if pieces of the addends are combined as they come: then it has no place.
  std::optional<size_t> sum = std::nullopt;
};

// What this rank takes out of a peer's ring.
class Incoming {
 public:
  Incoming(Waiting& waiting, int64_t peer, bool for_all, std::vector<AwaitedBox> awaited, int64_t whole_bytes,
           bool hands_back, const std::optional<Swap>& swap);

  // If slots are swapped: what this rank puts into them meanwhile. That many bytes need not be handed back.
  void answer_with(int64_t pieces, int64_t bytes_each) {
    answers_ = pieces;
    answer_bytes_ = bytes_each;
    turns_ = std::max(pieces, this->pieces());
  }
  int64_t pieces() const { return cursor_.count(); }

  int64_t peer() const { return peer_; }
  bool is_done() const { return cursor_.is_done(); }
  std::optional<size_t> sum() const { return awaited_[cursor_.box()].sum; }  // of the next piece
  bool is_available() const;

  // Copies the next piece to its place.
  void take();

  // For a reader that does more than copy: the slot, the piece in it, and a call that says that it is empty
  // now.
  const std::byte* slot() const;
  Piece piece() const { return cursor_.piece(); }
  void done();

 private:
  bool is_last_reader() const;
  void hand_back_rest();

  Waiting& waiting_;
  int64_t peer_;
  int64_t ring_;
  const std::atomic<uint64_t>& filled_;
  std::atomic<uint64_t>& taken_;
  std::vector<AwaitedBox> awaited_;
  int64_t whole_bytes_;  // all that the rank pulls
  bool for_all_;
  bool hands_back_;
  std::optional<Swap> swap_;
  int64_t answers_ = 0;
  int64_t answer_bytes_ = 0;
  int64_t turns_ = 1;
  Cursor cursor_;
};

}  // namespace shardway::shm
