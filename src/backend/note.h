// What a rank says at the beginning of a call, as bytes. Needs no torch: what a peer wrote is read here
// alone, out of a copy, and every number in it is checked against the bytes that are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace shardway::backend {

enum class CallKind : uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  sparse_all_reduce,
  barrier
};

const char* name_of(CallKind call);

// Elements from or to each rank.
struct Counts {
  int64_t each = 0;
  std::vector<int64_t> by_rank = {};  // empty: `each` for all

  int64_t of(int64_t rank) const { return by_rank.empty() ? each : by_rank[static_cast<size_t>(rank)]; }
};

struct Note {
  CallKind call = CallKind::barrier;
  uint8_t dtype = 0;  // torch's numbers, not checked here
  uint8_t op = 0;
  int32_t root = -1;
  double factor = 1;
  Counts sends = {};
  Counts takes = {};
  std::string_view problem = {};          // then nothing else counts
  bool has_input = false;                 // something else is told
  std::span<const std::byte> input = {};  // then this: the form of a sparse tensor
};

// What else is told has at most this many bytes.
inline constexpr int64_t kMostInputBytes = 16 << 10;
inline constexpr int64_t kMostProblemBytes = 1024;

// No tensor has more elements: what this many ranks' counts add up to, in bytes, is a number.
inline constexpr int64_t kMostRanks = 1024;
inline constexpr int64_t kMostElements = int64_t{1} << 48;

// A note that cannot be.
class BadNote : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Gives the note's length. The input is left out, and so are its words, where there is no room for it.
int64_t write_note(const Note& note, std::span<std::byte> to);

// Reads a note of a group of this many ranks; its problem and its input point into the bytes. False: it is no
// note of the backend.
bool read_note(std::span<const std::byte> bytes, int64_t ranks, Note& note);

}  // namespace shardway::backend
