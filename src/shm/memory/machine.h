// What this machine is called, and what it has.
#pragma once

#include <cstdint>
#include <string>

namespace shardway::shm {

// Its name among others; empty if it has none.
[[gnu::visibility("default")]] std::string name_of_machine();

// The model of the processor as the system writes it, or its kind where the system does not say.
[[gnu::visibility("default")]] std::string model_of_processor();

// How many cores the processes that this one starts can use, by affinity and control group.
[[gnu::visibility("default")]] int64_t usable_cores();

}  // namespace shardway::shm
