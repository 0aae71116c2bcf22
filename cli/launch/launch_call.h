// What `shardway launch` is asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shardway::cli {

// More ranks than this on one host are a typing error.
inline constexpr int64_t kMostRanks = 1024;

struct LaunchHost {
  std::string name = {};
  int64_t ranks = 1;
};

// Which ranks of a world on several hosts a launcher starts, and where all of them meet.
struct WorldPart {
  int64_t first_rank = 0;
  int64_t world_ranks = 1;
  std::string address = {};
  uint16_t port = 0;
};

struct LaunchCall {
  int64_t ranks = 1;         // up to kMostRanks on each host
  bool keeps_going = false;  // however many ranks fail
  int64_t may_lose = 0;      // so many may fail: the others go on, and the exit code is 0
  std::vector<std::string> command = {};
  std::vector<LaunchHost> hosts = {};            // empty: this one
  std::vector<std::string> agent = {};           // called as ssh is: with a host and a line for a shell there
  std::optional<WorldPart> part = std::nullopt;  // a launcher on another host has started this one
};

}  // namespace shardway::cli
