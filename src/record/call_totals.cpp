#include "record/call_totals.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <tuple>

#include "record/trace.h"
#include "shm/memory/fork_mutex.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace shardway::record {
namespace {

#if defined(__x86_64__)
// Whether the counter runs at one speed, whatever the core does.
bool has_even_counter() {
  constexpr unsigned kPowerLeaf = 0x80000007;
  constexpr unsigned kInvariant = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(kPowerLeaf, &a, &b, &c, &d) != 0 && (d & kInvariant) != 0;
}
#endif

shm::ForkMutex& claiming() {
  static auto* mutex = new shm::ForkMutex;  // never destroyed: a call may end after the end of main
  return *mutex;
}

[[maybe_unused]] const shm::ForkMutex& claiming_at_load = claiming();

template <class Words>
size_t hash_of(const Words& op, uint64_t group) {
  uint64_t hash = group;
  for (const uint64_t word : op) hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
  return static_cast<size_t>(hash >> 32);
}

}  // namespace

uint64_t now_ticks() {
#if defined(__x86_64__)
  static const bool is_even = has_even_counter();
  if (is_even) return __rdtsc();
#endif
  return static_cast<uint64_t>(precise_ns());
}

TotalsTable::TotalsTable()
    : cells_(std::make_unique<std::array<Cell, kCells>>()),
      first_ticks_(now_ticks()),
      first_ns_(precise_ns()) {}

void TotalsTable::add(const RecordLine& line, const EndedCall& ended) {
  constexpr auto kRelaxed = std::memory_order_relaxed;  // the line is this thread's; of the sums see Cell
  Key key{.op = {}, .group = line.group.load(kRelaxed)};
  for (size_t word = 0; word < key.op.size(); ++word) key.op[word] = line.op[word].load(kRelaxed);
  Cell* cell = cell_of(key, line);
  if (cell == nullptr) return;
  cell->calls.fetch_add(1, kRelaxed);
  cell->bytes.fetch_add(line.bytes.load(kRelaxed), kRelaxed);
  cell->ticks.fetch_add(ended.ticks, kRelaxed);
  if (ended.state == CallState::failed) cell->failed.fetch_add(1, kRelaxed);
  if (ended.waited_ns > 0) cell->waited_ns.fetch_add(ended.waited_ns, kRelaxed);
  if (ended.waited_ns >= 0 && !cell->knows_waiting.load(kRelaxed)) cell->knows_waiting.store(true, kRelaxed);
}

// Groups come and go: when there are too many, the calls of further ones are counted by op alone.
TotalsTable::Cell* TotalsTable::cell_of(const Key& key, const RecordLine& line) {
  const size_t begin = hash_of(key.op, key.group);
  for (size_t step = 0; step < kCells; ++step) {
    const size_t at = (begin + step) % kCells;
    Cell& cell = (*cells_)[at];
    // Acquire: pairs with the release in claimed(); the key is there.
    if (cell.is_used.load(std::memory_order_acquire)) {
      if (cell.key == key) return &cell;
      continue;
    }
    if (key.group != 0 && used_.load(std::memory_order_relaxed) >= kMostGroups)
      return cell_of({.op = key.op, .group = 0}, line);
    if (Cell* own = claimed(at, key, line)) return own;
    --step;  // another thread was faster: look at the cell again
  }
  return nullptr;
}

TotalsTable::Cell* TotalsTable::claimed(size_t at, const Key& key, const RecordLine& line) {
  const std::lock_guard lock(claiming());
  Cell& cell = (*cells_)[at];
  if (cell.is_used.load(std::memory_order_relaxed)) return nullptr;
  cell.key = key;
  cell.rank = key.group == 0 ? 0 : line.rank.load(std::memory_order_relaxed);
  cell.size = key.group == 0 ? 0 : line.size.load(std::memory_order_relaxed);
  used_.fetch_add(1, std::memory_order_relaxed);
  cell.is_used.store(true, std::memory_order_release);  // pairs with the acquire in cell_of()
  return &cell;
}

std::vector<CallTotals> TotalsTable::totals() const {
  const double ticks = static_cast<double>(now_ticks() - first_ticks_);
  const double ns_per_tick = ticks > 0 ? static_cast<double>(precise_ns() - first_ns_) / ticks : 0;
  std::vector<CallTotals> totals;
  for (const Cell& cell : *cells_) {
    if (!cell.is_used.load(std::memory_order_acquire)) continue;  // pairs with the release in claimed()
    const auto* op = reinterpret_cast<const char*>(cell.key.op.data());
    constexpr auto kRelaxed = std::memory_order_relaxed;  // see Cell
    totals.push_back({.op = std::string(op, strnlen(op, kOpBytes)),
                      .group = cell.key.group,
                      .rank = cell.rank,
                      .size = cell.size,
                      .calls = cell.calls.load(kRelaxed),
                      .failed = cell.failed.load(kRelaxed),
                      .bytes = cell.bytes.load(kRelaxed),
                      .seconds = static_cast<double>(cell.ticks.load(kRelaxed)) * ns_per_tick * 1e-9,
                      .knows_waiting = cell.knows_waiting.load(kRelaxed),
                      .waiting_s = static_cast<double>(cell.waited_ns.load(kRelaxed)) * 1e-9});
  }
  std::sort(totals.begin(), totals.end(), [](const CallTotals& a, const CallTotals& b) {
    return std::tie(a.group, a.op) < std::tie(b.group, b.op);
  });
  return totals;
}

}  // namespace shardway::record
