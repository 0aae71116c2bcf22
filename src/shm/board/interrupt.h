// How the user's interrupt ends a wait, such as Ctrl-C in Python.
#pragma once

#include <chrono>

namespace shardway::shm {

// Throws an exception if the wait of the calling thread should end.
using InterruptCheck = void (*)();

// Set once, by whatever loads the library. Without it, a user cannot interrupt a wait.
[[gnu::visibility("default")]] void set_interrupt_check(InterruptCheck check);

// How often a thread calls it during a long wait.
inline constexpr std::chrono::milliseconds kInterruptEvery{100};

void check_interrupt();

}  // namespace shardway::shm
