// The kind of processor, and which of its cores share a cache.
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace shardway::shm {

enum class Processor : uint8_t { unknown, amd_zen, intel, arm };

// Of this machine.
Processor this_processor();

// A value that is none of the four is unknown too: it may come from a peer.
const char* name_of(Processor processor);

// The cores in a list as the system writes it: "0-3,8". What is no number ends it.
cpu_set_t cores_in(std::string_view list);

// The cores that share the last cache of the first of `cores`. None where the system does not say.
cpu_set_t cores_at_cache_of(const cpu_set_t& cores);

// Whether every rank's cores are among those at one cache. False where a rank's are not known.
bool share_cache(std::span<const cpu_set_t> cores, const cpu_set_t& at_cache);

}  // namespace shardway::shm
