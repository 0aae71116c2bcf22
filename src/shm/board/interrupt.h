// How somebody who has the user's ear ends a wait: Python's Ctrl-C.
#pragma once

#include <chrono>

namespace shardway::shm {

// Throws what is to end the wait of the calling thread.
using InterruptCheck = void (*)();

// Set once, by what loads the library; without, nothing ends a wait but what it waits for.
[[gnu::visibility("default")]] void set_interrupt_check(InterruptCheck check);

// How often a thread that waits for long calls it.
inline constexpr std::chrono::milliseconds kInterruptEvery{100};

void check_interrupt();

}  // namespace shardway::shm
