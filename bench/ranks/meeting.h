// A page that the ranks of one contender share: where they meet before each call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shardway::bench {

int64_t now_ns();  // CLOCK_MONOTONIC, which all processes of a host share

class Meeting {
 public:
  // Maps the file, which is made when it is not there. Each rank is pinned to a core: rank modulo cores.
  Meeting(const std::string& path, int64_t rank, int64_t ranks);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int64_t rank() const { return rank_; }
  int64_t ranks() const { return ranks_; }

  // Returns once every rank has come as often as this one; meanwhile calls `while_waiting`, if it is given.
  void meet(const std::function<void()>& while_waiting = {});

  // Returns on all ranks at one moment where each has a core, else as the scheduler lets them.
  void start_together();

  // Every rank's block, in rank order. All blocks have one length, up to kBlockBytes.
  std::vector<std::byte> exchange(std::span<const std::byte> mine);

  static constexpr int64_t kBlockBytes = 4096 - 128;

 private:
  struct Place;

  int64_t rank_;
  int64_t ranks_;
  bool has_core_each_;
  uint64_t turn_ = 0;
  Place* places_;
};

}  // namespace shardway::bench
