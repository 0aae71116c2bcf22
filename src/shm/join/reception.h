// Receives those who connect to a listening socket and greet.
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

// All who connect are heard at once. One that stays silent, or says something else, keeps nobody waiting and
// is sent away after a second at most.
class Reception {
 public:
  using Clock = std::chrono::steady_clock;

  // Only processes of this user and this job become guests.
  Reception(File listener, const JobDigest& job);

  // Returns the next guest that has greeted, or nothing if none has by that time. In that case it throws
  // std::system_error if somebody came and could not be let in, for example for lack of file descriptors.
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
