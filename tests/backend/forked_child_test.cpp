// A child of fork is told that the group is its parent's, whatever the parent's threads did when it was
// forked.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "backend/backend.h"

namespace shardway::testing {
namespace {

constexpr unsigned kLimitS = 5;

// Whether a child of fork finds the group unusable; false too if it hangs.
bool child_is_told(backend::Backend& group) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitS);
    _exit(group.getError() == c10d::ErrorType::COMM_ERROR ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(ForkedChild, FindsNoLockOfTheBackendTaken) {
  backend::Backend group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                         c10::make_intrusive<backend::Options>());
  std::atomic<bool> is_over = false;
  std::thread caller([&] {
    while (!is_over) group.getError();  // holds the lock much of the time
  });
  bool are_told = true;
  for (int fork = 0; fork < 20 && are_told; ++fork) are_told = child_is_told(group);
  is_over = true;
  caller.join();
  EXPECT_TRUE(are_told);
}

}  // namespace
}  // namespace shardway::testing
