// Where the ranks of a group settle who goes on when others are gone. The roll lies in the group's memory, so
// what a rank wrote there stays when the rank dies.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace shardway::shm {

// Whether a rank goes on. It says "in" itself when it comes; another says "out" if it does not.
enum class Presence : uint32_t { open, in, out };

// What became of the group that the ranks of a round wanted to make.
enum class Outcome : uint32_t { open, made, abandoned };

// Rounds, in each of them a presence per rank, what the ranks tell one another, and an outcome. A presence
// and an outcome are settled once, by whoever is first: everybody reads the same from then on. What a rank
// tells in a round it writes once.
class Roll {
 public:
  static constexpr int64_t kRounds = 32;
  static constexpr int64_t kTurns = 2;  // as often the ranks that join a group tell one another something
  static constexpr size_t kToldBytes = 1024;

  // The memory holds zeros at first. The view does not own it.
  Roll(std::byte* data, int64_t ranks) : data_(data), ranks_(ranks) {}

  static int64_t bytes(int64_t ranks) { return kRounds * round_bytes(ranks); }

  // settle returns what counts: `wanted`, or what another rank settled before.
  Presence presence(int64_t round, int64_t rank) const;
  Presence settle(int64_t round, int64_t rank, Presence wanted) const;
  Outcome outcome(int64_t round) const;
  Outcome settle(int64_t round, Outcome wanted) const;

  // `bytes` is at most kToldBytes, and the same on every rank.
  void tell(int64_t round, int64_t turn, int64_t rank, std::span<const std::byte> bytes) const;
  bool has_told(int64_t round, int64_t turn, int64_t rank) const;
  void hear(int64_t round, int64_t turn, int64_t rank, std::span<std::byte> bytes) const;

 private:
  struct alignas(64) Told {
    std::atomic<uint32_t> is_there;  // stored with release when the bytes are written
    std::array<std::byte, kToldBytes> bytes;
  };
  struct alignas(64) Seat {
    std::atomic<uint32_t> presence;
    std::array<Told, kTurns> told;
  };
  struct alignas(64) RoundHead {
    std::atomic<uint32_t> outcome;
  };

  static int64_t round_bytes(int64_t ranks) {
    return int64_t{sizeof(RoundHead)} + ranks * int64_t{sizeof(Seat)};
  }
  RoundHead& head(int64_t round) const {
    return *reinterpret_cast<RoundHead*>(data_ + round * round_bytes(ranks_));
  }
  Seat& seat(int64_t round, int64_t rank) const {
    std::byte* seats = reinterpret_cast<std::byte*>(&head(round)) + sizeof(RoundHead);
    return reinterpret_cast<Seat*>(seats)[rank];
  }

  std::byte* data_;
  int64_t ranks_;
};

}  // namespace shardway::shm
