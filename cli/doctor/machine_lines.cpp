#include "cli/doctor/machine_lines.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "record/diagnosis.h"
#include "shm/memory/process.h"
#include "shm/memory/processor.h"

namespace shardway::cli {
namespace {

constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr int64_t kLittleDevShm = int64_t{256} << 20;
constexpr int64_t kFewFiles = 1024;

std::string first_line_of(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

std::optional<int64_t> free_in_dev_shm() {
  struct statvfs room {};
  if (statvfs("/dev/shm", &room) != 0 || access("/dev/shm", W_OK) != 0) return std::nullopt;
  return static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
}

int64_t most_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

// "1 core", "4 cores".
std::string counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

DoctorLine cores_line(const MachineFacts& facts) {
  const int64_t usable = std::min(facts.allowed_cores, facts.core_quota.value_or(facts.allowed_cores));
  DoctorLine line{.subject = "cores", .what = counted(usable, "core") + " for ranks"};
  if (facts.allowed_cores < facts.online_cores)
    line.what += "; this process may run on " + std::to_string(facts.allowed_cores) + " of " +
                 std::to_string(facts.online_cores);
  if (facts.core_quota && *facts.core_quota < facts.allowed_cores)
    line.what += "; its control group pays for " + std::to_string(*facts.core_quota) + " of " +
                 std::to_string(facts.allowed_cores);
  if (usable >= 2) return line;
  line.health = Health::slow;
  line.advice = facts.online_cores < 2
                    ? "ranks take turns on one core: take a machine with a core for each rank"
                    : "ranks take turns on one core: widen the affinity (taskset) or the limit of the "
                      "container (docker run --cpus)";
  return line;
}

DoctorLine memory_line(const MachineFacts& facts) {
  DoctorLine line{.subject = "memory",
                  .what = record::bytes_text(facts.available_bytes) + " of " +
                          record::bytes_text(facts.physical_bytes) +
                          " can be had, within the limits of the control groups"};
  if (facts.available_bytes >= kLittleMemory) return line;
  line.health = Health::slow;
  line.advice =
      "large tensors may fail: end what holds memory, or raise the container's limit (docker run -m)";
  return line;
}

DoctorLine huge_pages_line(const MachineFacts& facts) {
  if (facts.huge_pages.empty())
    return {.subject = "huge pages",
            .health = Health::slow,
            .what = "this system has no transparent huge pages",
            .advice = "the first use of a large result is slower; later ones are not"};
  const bool is_off = facts.huge_pages.find("[never]") != std::string::npos;
  if (!is_off)
    return {.subject = "huge pages", .what = "large results may use them (" + facts.huge_pages + ")"};
  return {.subject = "huge pages",
          .health = Health::slow,
          .what = "they are switched off (" + facts.huge_pages + ")",
          .advice =
              "write madvise to /sys/kernel/mm/transparent_hugepage/enabled: the first use of a large "
              "result is several times faster"};
}

DoctorLine numa_line(const MachineFacts& facts) {
  if (facts.numa_nodes <= 1) return {.subject = "NUMA", .what = "one node: all memory is equally near"};
  return {.subject = "NUMA",
          .what = counted(facts.numa_nodes, "node") + ": memory of another node is slower to read",
          .advice = "pin each rank to one node, with neighbouring ranks together (numactl, taskset)"};
}

DoctorLine dev_shm_line(const MachineFacts& facts) {
  DoctorLine line{.subject = "/dev/shm"};
  constexpr const char* kWho = "shardway does not need it, NCCL and the workers of torch's DataLoader do";
  if (facts.dev_shm_bytes && *facts.dev_shm_bytes >= kLittleDevShm) {
    line.what = record::bytes_text(*facts.dev_shm_bytes) + " are free";
    return line;
  }
  line.health = Health::slow;
  line.what = (facts.dev_shm_bytes ? record::bytes_text(*facts.dev_shm_bytes) + " are free"
                                   : std::string("it is missing or cannot be written")) +
              ": " + kWho;
  line.advice = "mount a larger tmpfs there (docker run --shm-size=8g)";
  return line;
}

DoctorLine descriptors_line(const MachineFacts& facts) {
  DoctorLine line{.subject = "descriptors"};
  line.what = facts.open_files == INT64_MAX ? std::string("a process may open as many files as it likes")
                                            : "a process may open " + counted(facts.open_files, "file");
  if (facts.open_files >= kFewFiles) return line;
  line.health = Health::slow;
  line.advice = "a rank needs two for every other rank of its host: ulimit -n 4096";
  return line;
}

}  // namespace

MachineFacts facts_of_this_machine() {
  const cpu_set_t allowed = shm::allowed_cores();
  const cpu_set_t nodes = shm::cores_in(first_line_of("/sys/devices/system/node/online"));
  const int64_t quota = shm::core_quota();
  return {.online_cores = sysconf(_SC_NPROCESSORS_ONLN),
          .allowed_cores = CPU_COUNT(&allowed),
          .core_quota = quota < 0 ? std::nullopt : std::optional(quota),
          .physical_bytes = shm::physical_memory_bytes(),
          .available_bytes = shm::available_memory_bytes(),
          .huge_pages = first_line_of("/sys/kernel/mm/transparent_hugepage/enabled"),
          .dev_shm_bytes = free_in_dev_shm(),
          .numa_nodes = std::max(CPU_COUNT(&nodes), 1),
          .open_files = most_open_files()};
}

DoctorLines machine_lines(const MachineFacts& facts) {
  return {cores_line(facts), memory_line(facts),  huge_pages_line(facts),
          numa_line(facts),  dev_shm_line(facts), descriptors_line(facts)};
}

}  // namespace shardway::cli
