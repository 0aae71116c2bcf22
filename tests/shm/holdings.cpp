#include "holdings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "rank_runner.h"

namespace shardway::testing {
namespace {

int64_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

int64_t open_files() { return entries_of("/proc/self/fd"); }
int64_t threads() { return entries_of("/proc/self/task"); }

// Of arenas and of groups, own and peers'. Other mappings are not ours: the thread sanitizer adds some.
int64_t mappings_of_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:shardway") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace

int64_t names_in_shared_memory() {
  const std::filesystem::directory_iterator names("/dev/shm");
  return std::count_if(begin(names), end(names), [](const auto& entry) {
    return entry.path().filename().string().find("shardway") != std::string::npos;
  });
}

void require_nothing_left(shm::Arena& arena, const std::function<void()>& round) {
  for (int i = 0; i < 3; ++i) round();
  const int64_t files = open_files();
  const int64_t running = threads();
  const int64_t mappings = mappings_of_shared_memory();
  const int64_t bytes = arena.stats().committed_bytes;
  for (int i = 0; i < 40; ++i) round();
  require(open_files() <= files + 2, "files were left open");  // of peers that lag behind
  require(threads() <= running + 2, "threads were left running");
  require(mappings_of_shared_memory() <= mappings + 4, "mappings were left");
  require(arena.stats().committed_bytes <= 2 * bytes, "memory was left");
}

}  // namespace shardway::testing
