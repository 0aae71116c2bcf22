// One version on its way: by the ranks alone if nothing has changed since the last one, else by the hub's
// word.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "link/moves/linked_job.h"

namespace shardway::link {

// This rank's side of a version.
struct Delivery {
  std::string call;  // "send" or "receive": in whose name errors are thrown, and what the hub is asked
  SharedTensors parts;
  SharedTensors destinations;
  std::shared_ptr<Loader> loader = nullptr;  // of this rank's Loads, if it receives
  std::vector<std::string> problems = {};
  int64_t sets = 1;                       // of parts that alternate
  std::function<void(int64_t)> on_begin;  // from now on destinations are written

  // Returns the version that all ranks of the role have now. Collective over the role.
  int64_t run(LinkedJob& job) const;

 private:
  std::string failure_without_hub(LinkedJob& job, JointGroup& joint) const;
  void run_by_hub(LinkedJob& job, const Json& go) const;
  void report_load(LinkedJob& job) const;
};

}  // namespace shardway::link
