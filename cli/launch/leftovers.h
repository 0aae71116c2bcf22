// What the ranks of `shardway launch` started and left behind.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "shm/memory/file.h"

namespace shardway::cli {

// Orphans below this process become its children from now on, whatever session they are in.
void adopt_orphans();

// All processes below this one that have not ended.
std::vector<pid_t> descendants();

// A process that ends what is left of a job if the launcher is killed. It knows the job's processes by their
// environment.
class Keeper {
 public:
  explicit Keeper(const std::string& job);
  ~Keeper();  // the launcher has ended everything itself
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  pid_t pid() const { return pid_; }

 private:
  shm::File launcher_is_alive_;  // the kernel closes it when the launcher ends, however that comes
  pid_t pid_ = -1;
};

}  // namespace shardway::cli
