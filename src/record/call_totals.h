// How often each op was called in each group, how many bytes it moved, and how long it took and waited: sums
// of this process, always kept.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record/record_file.h"
#include "record/recorded_call.h"

namespace shardway::record {

// A clock that costs as little as one can: the processor's own counter where it runs evenly, else the
// system's.
uint64_t now_ticks();

// Sums of the calls of one op in one group.
struct CallTotals {
  std::string op = {};
  uint64_t group = 0;  // 0: of groups for which there was no room
  int64_t rank = 0;    // in the group
  int64_t size = 0;
  int64_t calls = 0;  // that ended; those that failed included
  int64_t failed = 0;
  int64_t bytes = 0;
  double seconds = 0;
  bool knows_waiting = false;  // else waiting_s has no meaning
  double waiting_s = 0;        // of these, for other ranks, beyond the first looks
};

// What a call that has ended adds.
struct EndedCall {
  CallState state = CallState::done;
  uint64_t ticks = 0;      // that it took
  int64_t waited_ns = -1;  // -1: not known
};

class TotalsTable {
 public:
  TotalsTable();

  // Takes op, group, rank, size and bytes from the line, which is this thread's. Any thread may call.
  void add(const RecordLine& line, const EndedCall& ended);

  std::vector<CallTotals> totals() const;

 private:
  using OpWords = std::array<uint64_t, kOpBytes / sizeof(uint64_t)>;

  struct Key {
    OpWords op;
    uint64_t group;
    bool operator==(const Key&) const = default;
  };

  // Sums are relaxed: each is right by itself, and a reader may see them at different moments.
  struct alignas(64) Cell {
    std::atomic<bool> is_used{false};
    Key key = {};  // not changed once the cell is used
    int64_t rank = 0;
    int64_t size = 0;
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> failed{0};
    std::atomic<int64_t> bytes{0};
    std::atomic<uint64_t> ticks{0};
    std::atomic<int64_t> waited_ns{0};
    std::atomic<bool> knows_waiting{false};
  };

  static constexpr size_t kCells = 1024;
  static constexpr size_t kMostGroups = 768;  // cells of groups; the rest is for ops of further groups

  Cell* cell_of(const Key& key, const RecordLine& line);
  Cell* claimed(size_t at, const Key& key, const RecordLine& line);

  std::unique_ptr<std::array<Cell, kCells>> cells_;
  std::atomic<size_t> used_{0};
  uint64_t first_ticks_;
  int64_t first_ns_;
};

// Those of this process, in the order of group and op.
[[gnu::visibility("default")]] std::vector<CallTotals> call_totals();

}  // namespace shardway::record
