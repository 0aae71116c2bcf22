#include "shm/memory/machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "shm/memory/process.h"
#include "shm/memory/processor.h"

namespace shardway::shm {

std::string name_of_machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

// "model name\t: AMD EPYC", of the first core.
std::string model_of_processor() {
  std::ifstream cores("/proc/cpuinfo");
  for (std::string line; std::getline(cores, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return name_of(this_processor());
}

int64_t usable_cores() {
  const cpu_set_t allowed = allowed_cores();
  const int64_t quota = core_quota();
  const int64_t count = std::max(CPU_COUNT(&allowed), 1);
  return quota < 0 ? count : std::clamp<int64_t>(quota, 1, count);
}

}  // namespace shardway::shm
