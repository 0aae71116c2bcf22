// What a launcher tells the processes that it starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shardway::shm {

struct Job {
  int64_t rank = 0;
  int64_t size = 1;
  std::optional<int64_t> local_size = std::nullopt;  // on this host, if the launcher says
  std::string name = {};      // the same for all ranks of a launch, and different for any other launch
  bool has_id = true;         // false: started by hand, another job may have the same name
  std::string launcher = {};  // empty: none, the process is alone
};

// Throws std::invalid_argument, naming the variable, where the environment makes no sense.
Job job_of_environment();

}  // namespace shardway::shm
