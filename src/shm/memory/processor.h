// The kind of processor, and which of its cores share a cache.
#pragma once

#include <sched.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace shardway::shm {

enum class Processor : uint8_t { unknown, amd_zen, intel, arm };

// The kind of this machine's processor.
Processor this_processor();

// Any other value counts as unknown too: it may come from a peer.
const char* name_of(Processor processor);

// The cores in a list as the system writes it: "0-3,8". Anything that is not a number ends the list.
cpu_set_t cores_in(std::string_view list);

// The cores that share the last cache of the first of `cores`. None if the system does not say.
cpu_set_t cores_at_cache_of(const cpu_set_t& cores);

// Whether every rank's cores are all among those at one cache. False if a rank's cores are not known.
bool share_cache(std::span<const cpu_set_t> cores, const cpu_set_t& at_cache);

}  // namespace shardway::shm
