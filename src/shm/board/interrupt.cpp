#include "shm/board/interrupt.h"

#include <atomic>

namespace shardway::shm {
namespace {

std::atomic<InterruptCheck> check_of_process{nullptr};

}  // namespace

// Relaxed: only the pointer itself is handed over.
void set_interrupt_check(InterruptCheck check) { check_of_process.store(check, std::memory_order_relaxed); }

void check_interrupt() {
  if (const InterruptCheck check = check_of_process.load(std::memory_order_relaxed)) check();
}

}  // namespace shardway::shm
