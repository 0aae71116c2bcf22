// What functions compiled with -finstrument-functions ran between two moments: bench/frames.py loads it
// before them.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>

namespace {

struct Event {
  void* function;
  int32_t thread;
  bool is_entry;
};

constexpr size_t kMost = 1 << 20;
std::array<Event, kMost> events;
std::atomic<size_t> count = 0;
std::atomic<bool> is_on = false;
std::atomic<int32_t> threads = 0;
thread_local int32_t thread_number = -1;

void note(void* function, bool is_entry) {
  if (!is_on.load(std::memory_order_relaxed)) return;
  if (thread_number < 0) thread_number = threads++;
  const size_t at = count++;
  if (at < kMost) events[at] = {function, thread_number, is_entry};
}

}  // namespace

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): GCC's names
void __cyg_profile_func_enter(void* function, void* /*caller*/) { note(function, true); }
void __cyg_profile_func_exit(void* function, void* /*caller*/) { note(function, false); }
// NOLINTEND(readability-identifier-naming)

void frames_begin() {
  count = 0;
  is_on = true;
}

// A line per event: the thread, > or <, the address.
void frames_end(const char* path) {
  is_on = false;
  std::FILE* file = std::fopen(path, "w");
  for (size_t i = 0; i < count && i < kMost; ++i)
    std::fprintf(file, "%d %c %lx\n", events[i].thread, events[i].is_entry ? '>' : '<',
                 reinterpret_cast<unsigned long>(events[i].function));
  std::fclose(file);
}
}
