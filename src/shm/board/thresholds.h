// Where one way of moving bytes gives way to another. Each figure has the measurement that set it; the tables
// are in docs/decisions/0006-shared-memory.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace shardway::shm {

// An input of which others take at most this many bytes travels beside the header. Its rank copies it before
// it meets the others, who then read it with no further word. Ordinary memory, against pieces: a gather of
// 256 KiB on the Xeon takes 29.7 µs instead of 34.2 with 2 ranks, 404 instead of 467 with 8, 762 instead of
// 902 with 16, the same with 4. A reduce-scatter of 64 KiB among 2 takes 2.5 instead of 4.0 on the EPYC, of
// 256 KiB 10.4 instead of 11.7. A gather of 512 KiB would take 27.6 instead of 25.4 there.
inline constexpr int64_t kInlineBytes = 256 << 10;

// The same if ranks share cores: there the cache of the core has what was written last.
inline constexpr int64_t kInlineBytesOnSharedCores = 64 << 10;

// If every rank has a core, an input of at least this many bytes that lies in the arena is read there, even
// if it would fit beside the header. 2 ranks, all-gather: 1 KiB takes 0.75 µs this way and 0.89 beside the
// header, 4 KiB 0.96 and 1.38; a reduce-scatter of 4 KiB takes 0.98 and 2.23. On cores that share no cache
// the gathers take 1.8 to 2.3 and 1.5 to 1.9. If ranks share cores, the wait for the readers costs more than
// the copy.
inline constexpr int64_t kArenaFromBytes = 1 << 10;

// What others take of an input, if it is one run of at most this many bytes, lies in the header's page and
// begins in the header's own line. 2 ranks: an all-reduce of 64 B takes 0.2 µs this way and 0.3 beside the
// header; 256 B take 0.7 and 0.45, 2 KiB 0.91 and 0.61, because a peer can write the lines beside the header
// and so give them back sooner (lines.h, group_state.h).
inline constexpr int64_t kInsideBytes = 128;

// Payloads of up to this many bytes alternate between the same two places.
inline constexpr int64_t kNearBytes = 2 << 10;

// The longest note of a call: it holds the checks of the layer above.
inline constexpr int64_t kNoteBytes = 32 << 10;

// A slot's size. 2 ranks, 1 MiB each: 107 µs with 32 KiB, 99 with 64, 92 with 128. A rank has one ring per
// peer; with many peers the slots are smaller.
inline constexpr int64_t slot_bytes(int64_t ranks) {
  return std::clamp((int64_t{512} << 10) / ranks / 4096 * 4096, int64_t{8} << 10, int64_t{128} << 10);
}

// A box is cut into at least kLeastPieces pieces, but into none smaller than kLeastPieceBytes, so that the
// reader need not wait until all of the box is there. 2 ranks, all-gather of 128 KiB from one of them: 6.6
// µs, and 12.5 in one piece.
inline constexpr int64_t kLeastPieces = 4;
inline constexpr int64_t kLeastPieceBytes = 16 << 10;
inline constexpr int64_t piece_bytes(int64_t box_bytes, int64_t slot) {
  const int64_t pieces = std::max(kLeastPieces, (box_bytes + slot - 1) / slot);  // as equal as pages allow
  return std::clamp((box_bytes / pieces + 4095) / 4096 * 4096, std::min(kLeastPieceBytes, slot), slot);
}

// Memory that peers read, and do not hand back (lines.h), is written again only after they have read this
// much else: by then it has left the cache of the reader's core, from where a writer would have to fetch
// every line. 2 ranks, 1 MiB each: 135 µs with 256 KiB, 91 with 1 MiB, 97 with 2 MiB; 64 KiB
// each: 11.7, 7.0, 6.4.
inline constexpr int64_t kRotationBytes = 1 << 20;

// The number of slots in a ring.
inline constexpr int64_t slots_of(int64_t ranks) {
  return std::max<int64_t>(4, kRotationBytes / std::max<int64_t>(1, ranks - 1) / slot_bytes(ranks));
}

// Two areas in which payloads lie one after another if ranks do not swap. A payload of up to kFrontPayload
// bytes lies in the front area. If lines are written again and again, fewer of them are faster: 2 ranks, 16
// KiB each, handed back, take 1.8 µs in 256 KiB and 2.5 to 3.7 in 1 MiB.
inline constexpr int64_t kFrontPayload = 64 << 10;
inline constexpr int64_t front_bytes(int64_t ranks) {
  return std::max(6 * kFrontPayload, kRotationBytes / std::max<int64_t>(2, ranks - 1) / 4096 * 4096);
}

// Larger ones lie in the far area, and so does one of more than kNearToAll bytes that every peer reads whole,
// if each rank has a core: the lines that are written next must have left the caches of all its readers.
// Xeon, 8 ranks, a gather of 64 KiB: 94 µs in 384 KiB, 41 in 4 MiB, 40 in 6; of 16 KiB 23, 10, 10. 4 ranks,
// 64 KiB: 35, 24, 21. Where readers do not hand lines back, the writer goes past its own cache as well: 18
// µs.
inline constexpr int64_t kNearToAll = 12 << 10;
inline constexpr int64_t far_bytes(int64_t ranks) {
  return std::clamp((int64_t{256} << 20) / ranks / 4096 * 4096, 6 * kFrontPayload, int64_t{4} << 20);
}

// In each area there is room for the largest payloads that may be read still, for the next one, and for what
// is lost where the rest is too short for it: six times the largest (shm/model/payloads.pml).
inline constexpr int64_t payload_bytes(int64_t ranks) { return front_bytes(ranks) + far_bytes(ranks); }
inline constexpr int64_t inline_bytes(int64_t ranks, bool every_rank_has_a_core) {
  return every_rank_has_a_core ? std::min(kInlineBytes, far_bytes(ranks) / 6) : kInlineBytesOnSharedCores;
}
static_assert(inline_bytes(1024, true) >= kInlineBytesOnSharedCores);

// A box of at least kLeastSharedReduction bytes that is nearly all of a reduce-scatter is reduced by all
// ranks, if there are at least kLeastRanksToShare of them. Sharing costs a second leg and a copy of what the
// others have reduced. With two ranks it gains nothing: the rank that gets the box reads as much from the
// other core as if it worked alone. 2 ranks, 1 MiB each, all for one: 103 µs alone and 106 to 111 shared (551
// if the cores share no cache); 16 MiB in shared memory: 3.8 to 4.1 ms alone and 3.7 shared.
inline constexpr int64_t kLeastSharedReduction = 256 << 10;
inline constexpr int64_t kLeastRanksToShare = 3;

// Up to this many ranks an all-reduce is one pass, whatever its size. With two ranks, shares would bring as
// many bytes from the other core, and read and write the caller's memory once more. 2 ranks, out of place: 16
// MiB take 3.3 ms in one pass and 4.0 in shares, 64 MiB 19 and 25.
inline constexpr int64_t kRanksOfPasses = 2;

// With more ranks, an all-reduce of up to this many bytes is one pass.
inline constexpr int64_t kMostForEverybody = 16 << 10;

// Above this many bytes two ranks share the work of an all-reduce (two_rank_all_reduce.h). 16 KiB take 1.3 to
// 1.5 µs this way and 1.6 to 1.8 beside the header, 64 KiB 3.3 to 4.3 and 5.3 to 6.1; 8 KiB take 0.8 to 1.1
// both ways.
inline constexpr int64_t kShuttleFromBytes = 8 << 10;

// The size of a piece that goes there and back. There are enough pieces that both ranks have work, and they
// are small enough that the slots in use stay in the second-level cache. 16 KiB take 1.7 µs in pieces of 2
// KiB and 1.3 to 1.5 in pieces of 4 KiB; 256 KiB take 11.8 µs in pieces of 32 KiB and 15.4 to 20 in pieces of
// 64 KiB; 1 MiB takes 56 µs in pieces of 48 KiB and 85 in pieces of 128 KiB.
inline constexpr int64_t shuttled_piece_bytes(int64_t bytes) {
  return std::clamp((bytes / 8 + 4095) / 4096 * 4096, int64_t{4} << 10, int64_t{48} << 10);
}

// The number of slots in each section that two ranks fill in turn (swap.h), and their size. An all-gather of
// 256 KiB each takes 17 µs with 2 slots of 64 KiB per section and 17.3 with 32 KiB; one of 1 MiB takes 73
// with 64 KiB, 77 with 32 KiB, 79 with 1 slot, 77 with 4.
inline constexpr int64_t kSwapTurns = 2;
inline constexpr int64_t kSwappedBytes = 64 << 10;
static_assert(kSwapTurns <= slots_of(2) && kSwappedBytes <= slot_bytes(2));

// How often a waiter looks at a flag before it gives its core away; the prototype's figure.
inline constexpr int kSpins = 2000;

// The same if a peer runs on the same core. After both have slept, the system may leave them on one core for
// some milliseconds, although every rank could have its own.
inline constexpr int kLooksBesidePeer = 50;

// How long a waiter yields before it sleeps: a sleeper has to be woken by a system call. Not measured.
inline constexpr std::chrono::microseconds kYieldFor{1000};

// A sleeper looks up this often, so that it sees a peer's death.
inline constexpr std::chrono::milliseconds kNap{50};
inline constexpr std::chrono::milliseconds kShortNap{1};

// How often a waiter asks whether its peers are alive.
inline constexpr std::chrono::milliseconds kLookEvery{20};

}  // namespace shardway::shm
