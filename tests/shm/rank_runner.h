// Ranks that share memory, for tests: as threads of one process, or as processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/group/group.h"

namespace shardway::testing {

using RankBody = std::function<void(shm::SharedGroup&)>;

struct RunOptions {
  int64_t arena_bytes = int64_t{1} << 30;
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  // Few bytes ride with the header, so that small inputs go through rings too. Without: the default.
  std::optional<shm::Tuning> tuning = shm::Tuning{.inline_bytes = 8 << 10, .swaps = true, .hands_back = true};
};

// Each thread has an arena and a rank of its own. Gives the first exception on.
void run_threads(int64_t ranks, const RankBody& body, const RunOptions& options = {});

// For the body of a rank: what does not hold is how the rank ends.
inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

// A call of the group in which nothing moves.
inline void meet(shm::SharedGroup& group) {
  std::vector<std::byte> rows(static_cast<size_t>(group.size()) * 64);
  group.gather_notes({.rows = rows.data(), .row_bytes = 64});
}

// How a rank that was a process ended: empty, the text of its exception, or the signal.
using Endings = std::vector<std::string>;

// Forks the ranks and waits for them.
Endings run_processes(int64_t ranks, const RankBody& body, const RunOptions& options = {});

// An exchange among these of the ranks. One that waits for a rank that has ended throws.
using ExchangeAmong = std::function<shm::Exchange(const std::vector<int64_t>& members)>;
using RankApart = std::function<void(int64_t rank, const ExchangeAmong&)>;

// Ranks that make groups of some of them. Threads give the first exception on.
Endings run_processes_apart(int64_t ranks, const RankApart& body);
void run_threads_apart(int64_t ranks, const RankApart& body);

// Forks processes that meet through `exchange` but do not join by themselves.
Endings run_unjoined(int64_t ranks, const std::function<void(int64_t rank, const shm::Exchange&)>& body);

}  // namespace shardway::testing
