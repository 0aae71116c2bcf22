#include "record/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "shm/memory/process.h"

namespace shardway::record {
namespace {

const char* value_of(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read, never set here
}

// A word that makes no sense must not end a job: it is told, and nothing more.
LogLevel level_of_environment() {
  try {
    return level_of(value_of("SHARDWAY_LOG"), value_of("SHARDWAY_QUIET"));
  } catch (const std::invalid_argument& mistake) {
    print_lines(mistake.what());
    return LogLevel::trouble;
  }
}

}  // namespace

LogLevel level_of(const char* log, const char* quiet) {
  if (quiet != nullptr && *quiet != '\0' && std::string_view(quiet) != "0") return LogLevel::nothing;
  const std::string_view word = log == nullptr ? "" : log;
  if (word.empty()) return LogLevel::trouble;
  if (word == "info") return LogLevel::info;
  if (word == "debug") return LogLevel::debug;
  throw std::invalid_argument("SHARDWAY_LOG=" + std::string(word) + " is neither info nor debug");
}

bool is_quiet() { return level_of(nullptr, value_of("SHARDWAY_QUIET")) == LogLevel::nothing; }

LogLevel log_level() {
  constexpr uint64_t kLevels = 256;
  static std::atomic<uint64_t> known{0};  // relaxed: nothing else depends on it
  const uint64_t process = shm::fork_generation() + 1;
  const uint64_t word = known.load(std::memory_order_relaxed);
  if (word / kLevels == process) return static_cast<LogLevel>(word % kLevels);
  const LogLevel level = level_of_environment();
  known.store(process * kLevels + static_cast<uint64_t>(level), std::memory_order_relaxed);
  return level;
}

void print_lines(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += "shardway: " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  (void)!write(STDERR_FILENO, lines.data(), lines.size());
}

}  // namespace shardway::record
