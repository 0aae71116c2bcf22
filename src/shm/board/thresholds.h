// Where one way of moving bytes gives way to another. Each figure has the measurement that set it; the tables
// are in docs/decisions/0006-shared-memory.md.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace shardway::shm {

// An input of up to this many bytes travels beside the header. 2 ranks, ordinary memory, all-gather: 16 KiB
// 2.9 µs so and 4.0 staged, 64 KiB 5.7 and 6.6.
inline constexpr int64_t kInlineBytes = 64 << 10;

// From this many bytes on an input that lies in the arena is read there all the same, where every rank has a
// core. 2 ranks, all-gather: 1 KiB 0.75 µs so and 0.89 beside the header, 4 KiB 0.96 and 1.38; reduce-scatter
// of 4 KiB 0.98 and 2.23. Cores that share no cache: the gathers take 1.8 to 2.3 and 1.5 to 1.9. Where ranks
// share cores the wait for the readers costs more than the copy.
inline constexpr int64_t kArenaFromBytes = 1 << 10;

// An addend of up to this many bytes lies in the page of the header, from the header's own line on. 2 ranks,
// all-reduce: 64 B 0.2 µs so and 0.3 beside the header; 256 B 0.7 and 0.45, 2 KiB 0.91 and 0.61, for what
// lies beside it is handed back.
inline constexpr int64_t kInsideBytes = 128;

// Payloads up to this many bytes are written to the same two places again and again.
inline constexpr int64_t kNearBytes = 2 << 10;

// What a caller may send instead of an input: the checks of the layer above.
inline constexpr int64_t kNoteBytes = 32 << 10;

// A slot's size. 2 ranks, 1 MiB each: 107 µs with 32 KiB, 99 with 64, 92 with 128. A rank has one ring per
// peer; with many peers the slots are smaller.
inline constexpr int64_t slot_bytes(int64_t ranks) {
  return std::clamp((int64_t{512} << 10) / ranks / 4096 * 4096, int64_t{8} << 10, int64_t{128} << 10);
}

// A box is cut into at least this many pieces, of no fewer bytes, so that the reader need not wait until all
// of it is there. 2 ranks, all-gather of 128 KiB from one of them: 6.6 µs, 12.5 in one piece.
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

// The slots of a ring, and the bytes in which payloads lie one behind the other, where ranks do not swap. Of
// lines that are written again and again fewer are faster: 2 ranks, 16 KiB each, handed back: 1.8 µs in 256
// KiB, 2.5 to 3.7 in 1 MiB.
inline constexpr int64_t slots_of(int64_t ranks) {
  return std::max<int64_t>(4, kRotationBytes / std::max<int64_t>(1, ranks - 1) / slot_bytes(ranks));
}
inline constexpr int64_t payload_bytes(int64_t ranks) {
  return ranks <= 2 ? 4 * kInlineBytes
                    : std::max(4 * kInlineBytes, kRotationBytes / (ranks - 1) / 4096 * 4096);
}

// A box this large that is nearly all of a reduce-scatter is reduced by all ranks, of so many at least. It
// costs two meetings and a copy of what the others have reduced: the one that gets all of it reads as much
// from another core with two ranks as if it worked alone. 2 ranks, 1 MiB each, all for one: 103 µs alone and
// 106 to 111 shared (where cores share no cache, 551); 16 MiB in shared memory 3.8 to 4.1 ms and 3.7.
inline constexpr int64_t kLeastSharedReduction = 256 << 10;
inline constexpr int64_t kLeastRanksToShare = 3;

// Up to this many ranks an all-reduce is one pass, whatever its size: with two, shares would bring as many
// bytes from the other core, and read and write the caller's memory once more. 2 ranks, out of place: 16 MiB
// 3.3 ms so and 4.0 in shares, 64 MiB 19 and 25.
inline constexpr int64_t kRanksOfPasses = 2;

// With more, up to this many bytes.
inline constexpr int64_t kMostForEverybody = 16 << 10;

// From this many bytes on two ranks share the work (two_rank_all_reduce.h). 16 KiB 1.3 to 1.5 µs so and 1.6
// to 1.8 beside the header, 64 KiB 3.3 to 4.3 and 5.3 to 6.1; 8 KiB 0.8 to 1.1 both ways.
inline constexpr int64_t kShuttleFromBytes = 8 << 10;

// Pieces that go there and back: enough of them that both ranks have work, few enough bytes that the slots in
// use stay in the second cache. 16 KiB in pieces of 2 KiB 1.7 µs, of 4 KiB 1.3 to 1.5; 256 KiB in pieces of
// 32 KiB 11.8 µs, of 64 KiB 15.4 to 20; 1 MiB in pieces of 48 KiB 56 µs, of 128 KiB 85.
inline constexpr int64_t shuttled_piece_bytes(int64_t bytes) {
  return std::clamp((bytes / 8 + 4095) / 4096 * 4096, int64_t{4} << 10, int64_t{48} << 10);
}

// Slots that two ranks fill by turns (swap.h), and how large they are. All-gather of 256 KiB each 17 µs with
// 2 slots of 64 KiB on each board, 17.3 with 32 KiB; of 1 MiB 73 with 64 KiB, 77 with 32 KiB, 79 with 1 slot,
// 77 with 4.
inline constexpr int64_t kSwapTurns = 2;
inline constexpr int64_t kSwappedBytes = 64 << 10;
static_assert(kSwapTurns <= slots_of(2) && kSwappedBytes <= slot_bytes(2));

// Looks at a flag before the core is given away; the prototype's figure.
inline constexpr int kSpins = 2000;

// The same where a peer has the same core, as the system may have it for some milliseconds after both have
// slept, though every rank could have its own.
inline constexpr int kLooksBesidePeer = 50;

// How long a waiter yields before it sleeps: a sleeper has to be woken by a system call. Not measured.
inline constexpr std::chrono::microseconds kYieldFor{1000};

// A sleeper looks up this often, so that it sees a peer's death.
inline constexpr std::chrono::milliseconds kNap{50};
inline constexpr std::chrono::milliseconds kShortNap{1};

// How often a waiter asks whether its peers are alive.
inline constexpr std::chrono::milliseconds kLookEvery{20};

}  // namespace shardway::shm
