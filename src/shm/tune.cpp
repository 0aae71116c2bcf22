// What only a trial can tell: how far apart the ranks' cores are.
#include <algorithm>
#include <array>
#include <chrono>

#include "shm/group.h"

namespace shardway::shm {
namespace {

constexpr int kTrials = 7;

// A slot of bytes from every rank, on every rank.
Part trial_part(int64_t rank, int64_t size, int64_t bytes) {
  Part part{.element_bytes = 1};
  part.input.shape = one_dim(bytes);
  part.input.strides = one_dim(1);
  part.output_strides = one_dim(1);
  for (int64_t peer = 0; peer < size; ++peer) {
    part.pushes.push_back({.peer = peer, .from = one_dim(0), .extent = one_dim(bytes)});
    part.pulls.push_back(
        {.peer = peer, .from = one_dim(0), .to = one_dim(peer * bytes), .extent = one_dim(bytes)});
  }
  part.pulls[static_cast<size_t>(rank)].extent = one_dim(0);
  return part;
}

}  // namespace

// Every rank times a few gathers of one slot either way; the best times of all, added up, decide: other work
// on the machine only ever adds to them.
void Group::tune() {
  const int64_t bytes = slot_bytes(size());
  Part part = trial_part(rank(), size(), bytes);
  const std::vector<std::byte> input(static_cast<size_t>(bytes));
  std::vector<std::byte> output(static_cast<size_t>(bytes * size()));
  part.input.data = input.data();
  part.output = output.data();
  std::array<std::array<int64_t, kTrials>, 2> times{};
  for (int trial = 0; trial < kTrials; ++trial) {
    for (const Fill fill : {Fill::in_cache, Fill::past_cache}) {
      fill_ = fill;
      run(part);  // fills the slots, which the next one then finds in the readers' caches
      const auto start = std::chrono::steady_clock::now();
      run(part);
      times[static_cast<size_t>(fill)][static_cast<size_t>(trial)] =
          (std::chrono::steady_clock::now() - start).count();
    }
  }
  std::array<int64_t, 2> best{};
  for (size_t fill = 0; fill < best.size(); ++fill)
    best[fill] = *std::min_element(times[fill].begin(), times[fill].end());
  std::vector<std::array<int64_t, 2>> all(static_cast<size_t>(size()));
  gather_notes(std::as_bytes(std::span(best)), reinterpret_cast<std::byte*>(all.data()), sizeof(best));
  std::array<int64_t, 2> sums{};
  for (const auto& theirs : all) {
    for (size_t fill = 0; fill < sums.size(); ++fill) sums[fill] += theirs[fill];
  }
  fill_ = sums[0] < sums[1] * 9 / 10 ? Fill::in_cache : Fill::past_cache;
}

}  // namespace shardway::shm
