// Where a rank hands its memory to those who know the word of the group, and how it copes with few files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shm/join/rendezvous.h"
#include "shm/memory/arena.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;

// A doorway and what it hands out.
struct House {
  std::shared_ptr<Arena> arena = Arena::create(1 << 26);
  File process = handle_of_process();
  Doorway doorway{{arena->fd(), process.get()}};

  Handed call(std::chrono::milliseconds patience) const {
    return call_at(doorway.name(), doorway.secret(), patience);
  }
};

// A child of fork in which `body` says whether all is well.
pid_t start_child(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(20);
  _exit(body() ? 7 : 1);
}

bool was_well(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 7;
}

// Every file that this process may still have, of 32.
std::vector<File> take_all_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 32;
  setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<File> files;
  for (int fd = dup(1); fd >= 0; fd = dup(1)) files.emplace_back(fd);
  return files;
}

TEST(Doorway, OpensToTheWordOfTheGroup) {
  const House house;
  const Handed handed = house.call(1s);
  EXPECT_TRUE(handed.arena && handed.process && !handed.memory);
  Nonce wrong = house.doorway.secret();
  wrong[1] ^= 1;
  EXPECT_THROW(call_at(house.doorway.name(), wrong, 1s), std::runtime_error);
}

TEST(Doorway, ACallerWithTooManyFilesSaysSoAndCanTryAgain) {
  const House house;
  const auto calls_twice = [&] {
    std::vector<File> files = take_all_files();
    files.pop_back();  // for the connection
    std::string said;
    try {
      house.call(1s);
    } catch (const std::runtime_error& error) {
      said = error.what();
    }
    files.clear();
    return said.find("too many are open") != std::string::npos && house.call(1s).arena;
  };
  EXPECT_TRUE(was_well(start_child(calls_twice)));
}

// Its process has no file left, and peers come one after the other.
TEST(Doorway, KeepsAFileForItsVisitors) {
  const auto is_visited = [] {
    const House house;
    const pid_t caller = start_child([&] {
      std::this_thread::sleep_for(50ms);
      return house.call(2s).arena && house.call(2s).arena && house.call(2s).arena;
    });
    const std::vector<File> files = take_all_files();
    return was_well(caller);
  };
  EXPECT_TRUE(was_well(start_child(is_visited)));
}

// Its process takes all files that it may have, a caller comes, and files are closed again.
TEST(Doorway, OutlivesAMomentWithoutFiles) {
  const auto waits_without_work = [] {
    const House house;
    const pid_t caller = start_child([&] {
      std::this_thread::sleep_for(50ms);
      return static_cast<bool>(house.call(5s).arena);
    });
    std::vector<File> files = take_all_files();
    std::this_thread::sleep_for(150ms);
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    files.clear();
    const bool has_spun = used.ru_utime.tv_sec + used.ru_stime.tv_sec > 0 || used.ru_stime.tv_usec > 80'000;
    return was_well(caller) && !has_spun;
  };
  EXPECT_TRUE(was_well(start_child(waits_without_work)));
}

}  // namespace
}  // namespace shardway::shm
