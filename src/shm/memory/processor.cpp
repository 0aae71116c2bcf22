#include "shm/memory/processor.h"

#include <charconv>
#include <cstring>
#include <fstream>
#include <string>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace shardway::shm {
namespace {

#if defined(__x86_64__) || defined(__i386__)
Processor identify() {
  constexpr unsigned kZen = 0x17;  // the first Zen family
  unsigned most = 0;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(0, &most, &ebx, &ecx, &edx) == 0) return Processor::unknown;
  std::string vendor(12, '\0');
  std::memcpy(vendor.data(), &ebx, 4);
  std::memcpy(vendor.data() + 4, &edx, 4);
  std::memcpy(vendor.data() + 8, &ecx, 4);
  if (vendor == "GenuineIntel") return Processor::intel;
  if (vendor != "AuthenticAMD" || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return Processor::unknown;
  const unsigned family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
  return family >= kZen ? Processor::amd_zen : Processor::unknown;
}
#elif defined(__aarch64__)
Processor identify() { return Processor::arm; }
#else
Processor identify() { return Processor::unknown; }
#endif

int first_of(const cpu_set_t& cores) {
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) return core;
  }
  return -1;
}

}  // namespace

Processor this_processor() {
  static const Processor found = identify();
  return found;
}

const char* name_of(Processor processor) {
  switch (processor) {
    case Processor::amd_zen:
      return "AMD Zen";
    case Processor::intel:
      return "Intel";
    case Processor::arm:
      return "Arm";
    case Processor::unknown:
      break;
  }
  return "an unknown processor";
}

cpu_set_t cores_in(std::string_view list) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const char* next = list.data();
  const char* end = list.data() + list.size();
  while (next != end) {
    int first = 0;
    auto read = std::from_chars(next, end, first);
    if (read.ec != std::errc()) break;
    int last = first;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc() || first < 0 || last >= CPU_SETSIZE) break;
    for (int core = first; core <= last; ++core) CPU_SET(core, &cores);
    if (read.ptr == end || *read.ptr != ',') break;
    next = read.ptr + 1;
  }
  return cores;
}

cpu_set_t cores_at_cache_of(const cpu_set_t& cores) {
  std::string widest;
  int highest = 0;
  const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(first_of(cores)) + "/cache/index";
  for (int index = 0;; ++index) {
    int level = 0;
    if (!(std::ifstream(folder + std::to_string(index) + "/level") >> level)) break;
    if (level < highest) continue;
    highest = level;
    std::ifstream(folder + std::to_string(index) + "/shared_cpu_list") >> widest;
  }
  return cores_in(widest);
}

bool share_cache(std::span<const cpu_set_t> cores, const cpu_set_t& at_cache) {
  for (const cpu_set_t& of_rank : cores) {
    cpu_set_t common;
    CPU_AND(&common, &of_rank, &at_cache);
    if (CPU_COUNT(&of_rank) == 0 || !CPU_EQUAL(&common, &of_rank)) return false;
  }
  return true;
}

}  // namespace shardway::shm
