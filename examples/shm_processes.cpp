// Processes of one host that gather and add plain memory, without torch: `shm_processes [RANKS]`.
#include <shardway/shm.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace sw = shardway;

namespace {

// How the ranks find one another: any all-gather of small blocks. Here a page that they inherited.
struct Page {
  std::atomic<int64_t> arrived;
  std::byte blocks[64][1024];
};

std::vector<std::byte> exchange(Page& page, int64_t rank, int64_t ranks, int round,
                                std::span<const std::byte> mine) {
  std::memcpy(page.blocks[rank + ranks * round], mine.data(), mine.size());
  page.arrived.fetch_add(1);
  while (page.arrived.load() < ranks * (round + 1)) usleep(100);
  std::vector<std::byte> all;
  for (int64_t peer = 0; peer < ranks; ++peer) {
    const std::byte* block = page.blocks[peer + ranks * round];
    all.insert(all.end(), block, block + mine.size());
  }
  return all;
}

void run(Page& page, int64_t rank, int64_t ranks) {
  int round = 0;
  const sw::HostGroup group =
      sw::HostGroup::join({.rank = rank, .size = ranks, .exchange = [&](std::span<const std::byte> mine) {
                             return exchange(page, rank, ranks, round++, mine);
                           }});

  // Rank r has 1000 (r + 1) numbers, in memory that the others read directly.
  std::vector<int64_t> sizes;
  for (int64_t r = 0; r < ranks; ++r) sizes.push_back(1000 * (r + 1));
  const int64_t count = sizes[static_cast<size_t>(rank)];
  const auto mine = group.allocate<float>(count);
  std::fill_n(mine.get(), count, static_cast<float>(rank + 1));

  std::vector<float> all(static_cast<size_t>(500 * ranks * (ranks + 1)));
  group.all_gather_v<float>({mine.get(), static_cast<size_t>(count)}, all, sizes);
  std::vector<float> sum(static_cast<size_t>(count));
  group.reduce_scatter_v<float>(all, sum, sizes);

  const auto expected = static_cast<float>(ranks * (rank + 1));
  if (all.back() != static_cast<float>(ranks) || sum.front() != expected)
    throw std::runtime_error("wrong numbers");
  std::printf("rank %ld: gathered %zu numbers, its %zu sums are %.0f\n", static_cast<long>(rank), all.size(),
              sum.size(), expected);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t ranks = std::clamp(argc > 1 ? std::atoi(argv[1]) : 3, 1, 32);
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* page = new (memory) Page{};
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    try {
      run(*page, rank, ranks);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank), error.what());
      _exit(1);
    }
    std::fflush(stdout);
    _exit(0);
  }
  int failures = 0;
  for (int status = 0; wait(&status) > 0;) failures += status != 0 ? 1 : 0;
  return failures == 0 ? 0 : 1;
}
