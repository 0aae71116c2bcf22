// What only a trial can tell: what a look into a peer's process costs.
#include <algorithm>
#include <chrono>
#include <functional>

#include "shm/group.h"

namespace shardway::shm {
namespace {

constexpr int kTrials = 5;

// Bytes of every rank to the rank before it, and back around.
Part trial_part(int64_t rank, int64_t size, const std::vector<std::byte>& input,
                std::vector<std::byte>& output) {
  const Dims whole = one_dim(static_cast<int64_t>(input.size()));
  Part part{.element_bytes = 1};
  part.input = {.data = input.data(), .shape = whole, .strides = one_dim(1)};
  part.output = output.data();
  part.output_strides = one_dim(1);
  part.pushes.push_back({.peer = (rank + size - 1) % size, .from = one_dim(0), .extent = whole});
  part.pulls.push_back({.peer = (rank + 1) % size, .from = one_dim(0), .to = one_dim(0), .extent = whole});
  return part;
}

int64_t time_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return (std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Group::choose_ways(const std::optional<Ways>& given) {
  const bool can_read_processes = ways_.can_read_processes;
  ways_ = given.value_or(Ways{});
  ways_.inline_bytes = std::min(ways_.inline_bytes, kInlineBytes);
  ways_.can_read_processes = can_read_processes;
  if (!can_read_processes) ways_.address_from_bytes = INT64_MAX;
  // Ranks that take turns on a core cannot be timed, and share its cache.
  if (given || size() == 1 || !waiting_->options().spins) return;
  if (can_read_processes) tune_address();
}

// The best times of all ranks, added up: other work on the machine only ever adds to a time.
std::vector<int64_t> Group::best_of_all(const std::vector<int64_t>& mine) {
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(size()));
  gather_notes(std::as_bytes(std::span(mine)), reinterpret_cast<std::byte*>(all.data()),
               static_cast<int64_t>(mine.size() * sizeof(int64_t)));
  std::vector<int64_t> sums(mine.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) sums[i % mine.size()] += all[i];
  return sums;
}

// From the least size at which it was faster on; the sizes above were not asked.
void Group::tune_address() {
  for (const int64_t bytes : kAddressTrialBytes) {
    const std::vector<std::byte> input(static_cast<size_t>(bytes));
    std::vector<std::byte> output(input.size());
    const Part part = trial_part(rank(), size(), input, output);
    ways_.address_from_bytes = INT64_MAX;
    for (int64_t staged = 0; staged < 2 * kRotationBytes; staged += bytes) run(part);  // every slot is warm
    std::vector<int64_t> best(2, INT64_MAX / size());
    for (int trial = 0; trial < kTrials; ++trial) {
      for (const bool by_address : {false, true}) {
        ways_.address_from_bytes = by_address ? bytes : INT64_MAX;
        int64_t& least = best[by_address ? 1 : 0];
        least = std::min(least, time_of([&] { run(part); }));
      }
    }
    const std::vector<int64_t> sums = best_of_all(best);
    ways_.address_from_bytes = sums[1] < sums[0] * 9 / 10 ? bytes : INT64_MAX;
    if (ways_.address_from_bytes == bytes) return;
  }
}

}  // namespace shardway::shm
