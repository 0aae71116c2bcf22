// How groups in shared memory are tuned, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace [[gnu::visibility("default")]] shardway {

// Groups that were tuned alike. Each choice says where it comes from: a default, or SHARDWAY_TUNING.
struct TunedGroups {
  int64_t ranks = 0;
  int64_t groups = 1;          // how many were made, including those that are gone
  std::string processor = {};  // as rank 0 sees it
  bool shares_cache = false;   // whether all cores that the ranks may run on share their last cache
  bool swap = false;           // two ranks fill the memory that they have emptied
  std::string swap_from = {};
  bool hand_back = false;  // readers hand cache lines back to the writer
  std::string hand_back_from = {};

  bool operator==(const TunedGroups&) const = default;
};

struct TuningStats {
  std::string processor = {};  // of this machine
  std::vector<TunedGroups> groups = {};
};

// Returns how the groups of this process are tuned. SHARDWAY_TUNING, such as "swap=1,hand_back=0", overrides
// the defaults; it must be the same on every rank. Any thread may call.
TuningStats tuning_stats();

}  // namespace shardway
