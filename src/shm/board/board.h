// What a rank shows to the others of a group. Its board lies in its own arena: that rank alone writes it, and
// all read it. A board has a section in the group's memory, with payloads and slots (group_memory.h). Any
// rank can write there. A section's bytes have one writer at a time, and that is not always the board's rank:
// readers hand lines back (lines.h), and two ranks may fill each other's slots (swap.h,
// two_rank_all_reduce.h) and payloads (group_state.h). docs/architecture.md says for each kind of byte who
// writes it, until when, and which store hands it over.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "shm/board/thresholds.h"
#include "shm/kernels/dims.h"

namespace shardway::shm {

inline constexpr int64_t kMaxListed = 512;  // pushes that a header can list
static_assert(kNoteBytes <= kInlineBytes);  // holds_payload has one limit for both

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Why a rank will not take part again, and whose fault that is.
enum class End : uint8_t { none, left, died, timed_out, failed, aborted, unanswered, interrupted, shrunk };
struct Ended {
  End how = End::none;
  int64_t rank = 0;
};

// Counts between this rank and one peer. Unless said otherwise, here and in BoardHead: the owner stores a
// count with release, after it has written or read what the count stands for. Peers load it with acquire
// before they read or write that. The owner's own loads are relaxed, and one thread at a time stores.
struct alignas(64) PairLine {
  std::atomic<uint64_t> put;           // slots filled for the peer; its `taken` follows
  std::atomic<uint64_t> taken;         // slots emptied of the ring that the peer fills for this rank
  std::atomic<uint64_t> taken_of_all;  // slots emptied of the ring that the peer fills for everybody
  std::atomic<uint64_t> sent;          // messages sent to the peer, by any thread; its `received` follows
  std::atomic<uint64_t> received;      // messages from the peer that this rank has read
  std::atomic<int64_t> first_message;  // where in the arena the first message to the peer lies, if any
};

// How a rank's input is read in this collective.
enum class Path : uint8_t {
  none,    // nothing moves out of it
  packed,  // beside the header, row-major
  arena,   // where it lies, in the rank's arena
  staged,  // through the rings, packed in the order of the pushes
  inside   // in the header's page, what others take of it as one run of bytes: at most kInsideBytes
};

// In place of a rank that is waited for.
inline constexpr int32_t kNobody = -1;
inline constexpr int32_t kSomebodyElsewhere = -2;

// Fields lie on separate lines according to who reads them and when. What nobody else looks at in a usual
// call stays in this rank's cache, and so does what this rank only reads of its peers.
struct BoardHead {
  alignas(64) std::atomic<uint32_t> ended;  // an Ended; 0 while the rank takes part
  std::atomic<uint32_t> asleep;             // threads of this rank that sleep on somebody's bell: see ring()
  alignas(64) std::atomic<uint32_t> bell;   // changes with every change of the board; sleepers sleep on it
  alignas(64) std::atomic<uint64_t> finished;     // the last collective whose tensors it has finished reading
  alignas(64) std::atomic<uint64_t> combined;     // the last collective of two legs whose first leg is over
  std::atomic<int64_t> result;                    // where that leg's result lies, and
  std::atomic<Path> result_path;                  // how it is read; `combined` releases both
  alignas(64) std::atomic<uint64_t> put_for_all;  // slots filled for everybody; peers' `taken_of_all` follow
  alignas(64) std::atomic<int32_t> core{-1};      // where it ran when it last entered a call; relaxed: a hint
  std::atomic<int32_t> awaited{kNobody};          // whom it has been waiting for, for some time, or
                                                  // kSomebodyElsewhere; relaxed: a hint
};

struct Listed {
  int64_t offset_bytes;  // from the input's first element to the box's
  int64_t volume;        // in elements
};

// Where a rank's note lies among its payloads, and what tells it from others: a rank whose own note has the
// same length and the same hash has the same note, and does not read this one.
struct NotePlace {
  uint32_t bytes = 0;
  uint32_t base = 0;
  uint64_t hash = 0;

  bool is_alike(const NotePlace& other) const { return bytes == other.bytes && hash == other.hash; }
};

// What a rank says before a collective: one line, followed by the lists, whose lengths its fields give. A
// usual header is two lines long: each further line costs a reader the time to fetch it from the writer's
// cache.
struct alignas(64) Header {
  uint64_t number = 0;
  uint64_t mark = 0;  // what the call is about (subject.h)
  Path path = Path::none;
  uint8_t dims = 0;
  uint8_t for_all = 0;  // one box goes to every peer, through the ring for everybody
  uint8_t is_listed = 0;
  uint32_t element_bytes = 0;
  int64_t base = 0;  // where the input begins: an offset in the arena; if it is packed, where its first byte
                     // would lie among the payloads if that byte were sent; if it is inside, the same in the
                     // run there; otherwise unused
  int64_t span_bytes = 0;  // of the input in memory, from its first element to the end of its last
  NotePlace note = {};
  uint64_t inside = 0;  // the first bytes of an input that is inside the page
};

// An input that is inside the page begins in the header's own line and continues behind it, so that a reader
// fetches one line fewer. There are no lists then.
inline constexpr int64_t kInside = offsetof(Header, inside);
static_assert(kInside + kInsideBytes <= kMaxListed * int64_t{sizeof(Listed)});

// A call of several tensors has a part for each. Its header has this value in place of the number of dims. A
// record per part lies beside the header, where a packed input would be.
inline constexpr uint8_t kListOfParts = 0xff;
inline constexpr int64_t kMostParts = 128;

struct Axis {
  int64_t length;
  int64_t stride_bytes;
};

// How the input of one part of a list is read: in the arena or through the rings, if at all.
struct PartRecord {
  int64_t base;        // an offset in the arena, else 0
  int64_t span_bytes;  // as in Header
  uint32_t element_bytes;
  Path path;
  uint8_t dims;
  uint8_t is_listed;                // the header's list of pushes is this part's
  std::array<Axis, kMaxDims> axes;  // only `dims` of them are written
};
static_assert(kMostParts * int64_t{sizeof(PartRecord)} <= kInlineBytes);

// The lists behind a header, one after another: shape, strides in bytes, the index of the first push to each
// rank (and one past the last push), the pushes.
class Lists {
 public:
  Lists(std::byte* data, int64_t dims, int64_t ranks) : data_(data), dims_(dims), ranks_(ranks) {}

  int64_t* shape() const { return reinterpret_cast<int64_t*>(data_); }
  int64_t* strides() const { return shape() + dims_; }
  int32_t* first() const { return reinterpret_cast<int32_t*>(strides() + dims_); }
  Listed* listed() const { return reinterpret_cast<Listed*>(strides() + dims_ + (ranks_ + 2) / 2); }

  static int64_t most_bytes(int64_t ranks) {
    return 8 * (2 * int64_t{kMaxDims} + (ranks + 2) / 2) + kMaxListed * int64_t{sizeof(Listed)};
  }

 private:
  std::byte* data_;
  int64_t dims_;
  int64_t ranks_;
};

// Where things lie in a board of a group of this many ranks. Two pages take turns. A rank that fills one for
// collective k has seen every peer enter k-1, so nobody still reads what the page held for k-2: a peer stores
// its number with release after all that it read in the call before.
class BoardPlan {
 public:
  explicit BoardPlan(int64_t ranks)
      : ranks_(ranks), slots_(slots_of(ranks)), slot_bytes_(slot_bytes(ranks)) {}

  int64_t ranks() const { return ranks_; }
  int64_t pair(int64_t peer) const { return int64_t{sizeof(BoardHead)} + peer * int64_t{sizeof(PairLine)}; }
  int64_t page(uint64_t number) const {
    return pair(ranks_) + static_cast<int64_t>(number % 2) * page_bytes();
  }
  int64_t lists(uint64_t number) const { return page(number) + int64_t{sizeof(Header)}; }
  int64_t bytes() const { return pair(ranks_) + 2 * page_bytes(); }

  // A rank's section: payloads, then rings.
  int64_t payload_bytes() const { return shm::payload_bytes(ranks_); }
  int64_t slots() const { return slots_; }
  int64_t slot(int64_t ring, uint64_t number) const {
    return payload_bytes() + (ring * slots_ + static_cast<int64_t>(number) % slots_) * slot_bytes_;
  }
  int64_t section_bytes() const {
    return round_up(payload_bytes() + ranks_ * slots_ * slot_bytes_, 4096);  // no two sections share a page
  }

 private:
  static int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }
  int64_t page_bytes() const { return int64_t{sizeof(Header)} + round_up(Lists::most_bytes(ranks_), 64); }

  int64_t ranks_;
  int64_t slots_;
  int64_t slot_bytes_;
};

// A view of one rank's board and section.
class Board {
 public:
  Board() = default;
  Board(std::byte* data, std::byte* section, const BoardPlan& plan)
      : data_(data), section_(section), plan_(plan) {}

  BoardHead& head() const { return *reinterpret_cast<BoardHead*>(data_); }
  PairLine& pair(int64_t peer) const { return *reinterpret_cast<PairLine*>(data_ + plan_.pair(peer)); }

  // The header of a collective. Its number is the flag: it is stored last, with release (enter), and read
  // first, with acquire (meet).
  Header& header(uint64_t number) const { return *reinterpret_cast<Header*>(data_ + plan_.page(number)); }
  std::atomic_ref<uint64_t> entered(uint64_t number) const {
    return std::atomic_ref<uint64_t>(header(number).number);
  }
  Lists lists(uint64_t number, int64_t dims) const {
    return {data_ + plan_.lists(number), dims, plan_.ranks()};
  }
  std::byte* inside(uint64_t number) const { return data_ + plan_.page(number) + kInside; }
  const BoardPlan& plan() const { return plan_; }
  std::byte* payload(int64_t offset) const { return section_ + offset; }
  bool holds_payload(int64_t offset, int64_t bytes) const {
    return offset >= 0 && bytes >= 0 && bytes <= kInlineBytes && offset <= plan_.payload_bytes() - bytes;
  }
  std::byte* slot(int64_t ring, uint64_t number) const { return section_ + plan_.slot(ring, number); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::byte* section_ = nullptr;
  BoardPlan plan_{1};
};

// Where the owner of a board puts what rides with the header of a collective, unless two ranks swap
// (group_state.h). Small payloads alternate between two places, which stay in the cache. Larger ones lie one
// after another in one of two areas (thresholds.h), and begin at its front again when there is no room left.
// Those of the previous call may still be read, a rank's input and its share of a reduction (legs.h); there
// is room for both and for this one.
class Payloads {
 public:
  int64_t place(const Board& board, uint64_t number, int64_t bytes, bool is_far) {
    if (bytes <= kNearBytes) return small_place(number);
    const int64_t front = front_bytes(board.plan().ranks());
    if (!is_far && bytes <= kFrontPayload) return place_in({kFirst, front}, near_, bytes);
    const Area far = {front, board.plan().payload_bytes()};
    if (far_ == 0) touch(board, far);
    return place_in(far, far_, bytes);
  }
  bool is_far(const Board& board, int64_t offset) const {
    return offset >= front_bytes(board.plan().ranks());
  }

  static int64_t small_place(uint64_t number) { return static_cast<int64_t>(number % 2) * kNearBytes; }

 private:
  static constexpr int64_t kFirst = 2 * kNearBytes;

  struct Area {
    int64_t begin;
    int64_t end;
  };

  // Memory that is there already comes to a reader 16 pages at a time. Otherwise each page is a fault of
  // every rank: Xeon, 16 ranks, the first 190 gathers of 16 KiB took 140 µs each, later ones 24.
  static void touch(const Board& board, const Area& area) {
    for (int64_t page = area.begin; page < area.end; page += 4096)
      *reinterpret_cast<volatile std::byte*>(board.payload(page)) = std::byte{0};
  }

  static int64_t place_in(const Area& area, int64_t& next, int64_t bytes) {
    if (next < area.begin || next + bytes > area.end) next = area.begin;
    const int64_t offset = next;
    next += (bytes + 63) / 64 * 64;
    return offset;
  }

  int64_t near_ = 0;
  int64_t far_ = 0;
};

// An Ended packed into a word, and unpacked again.
inline uint32_t word_of(const Ended& ended) {
  return static_cast<uint32_t>(ended.how) | static_cast<uint32_t>(ended.rank) << 8;
}
inline Ended ended_of(uint32_t word) {
  return {.how = static_cast<End>(word & 0xff), .rank = static_cast<int64_t>(word >> 8)};
}

}  // namespace shardway::shm
