// Who comes to a listening socket and greets.
#pragma once

#include <chrono>
#include <list>
#include <optional>

#include "shm/join/greeting.h"
#include "shm/memory/file.h"

namespace shardway::shm {

struct Guest {
  File connection;
  Greeting greeting;
};

// All who connect are heard at once: one that stays silent, or says something else, keeps nobody waiting and
// is sent away after a second.
class Reception {
 public:
  using Clock = std::chrono::steady_clock;

  // Guests are of this user and of this job.
  Reception(File listener, const JobDigest& job);

  // The next guest that has greeted, or none by that time. Throws std::system_error, then, where somebody
  // came and could not be let in, as for want of file descriptors.
  std::optional<Guest> next(Clock::time_point until);

 private:
  struct Caller {
    File connection;
    GreetingBytes bytes;
    size_t got = 0;
    Clock::time_point deadline;
  };

  void let_in();
  std::optional<Guest> find_greeting();
  void wait(Clock::time_point until) const;

  File listener_;
  JobDigest job_;
  std::list<Caller> callers_;  // the longest waiting first
  int shortage_ = 0;           // why the last caller could not be let in
};

}  // namespace shardway::shm
