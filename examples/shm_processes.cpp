// Processes of one host that gather and add plain memory, without torch: `shardway launch -n 3
// ./shm_processes`.
#include <shardway/shm.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace sw = shardway;

namespace {

void run() {
  const sw::HostGroup world = sw::HostGroup::join();
  const int64_t ranks = world.size();

  // Rank r has 1000 (r + 1) numbers, in memory that the others read directly.
  std::vector<int64_t> sizes;
  for (int64_t r = 0; r < ranks; ++r) sizes.push_back(1000 * (r + 1));
  const int64_t count = sizes[static_cast<size_t>(world.rank())];
  const auto mine = world.allocate<float>(count);
  std::fill_n(mine.get(), count, static_cast<float>(world.rank() + 1));

  std::vector<float> all(static_cast<size_t>(500 * ranks * (ranks + 1)));
  world.all_gather_v<float>({mine.get(), static_cast<size_t>(count)}, all, sizes);
  std::vector<float> sum(static_cast<size_t>(count));
  world.reduce_scatter_v<float>(all, sum, sizes);

  const auto expected = static_cast<float>(ranks * (world.rank() + 1));
  if (all.back() != static_cast<float>(ranks) || sum.front() != expected)
    throw std::runtime_error("wrong numbers");
  std::printf("gathered %zu numbers, its %zu sums are %.0f\n", all.size(), sum.size(), expected);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
