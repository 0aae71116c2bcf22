// A child of fork is told that the group is its parent's, whatever the parent's threads did when it was
// forked.
#include <ATen/ATen.h>
#include <cxxabi.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "backend/backend.h"
#include "transport/common/home_process.h"

namespace shardway::testing {
namespace {

constexpr unsigned kLimitS = 20;

template <class Call>
bool refuses(Call&& call) {
  try {
    call();
  } catch (const c10::DistBackendError&) {
    return true;
  }
  return false;
}

// Whether `is_told` is true in a child of fork; false too if it hangs.
template <class IsTold>
bool child_is_told(IsTold&& is_told) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kLimitS);
    _exit(is_told() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

// Whether every one of some children is told while a thread of their parent calls `disturb` again and again.
template <class Disturb, class IsTold>
bool children_are_told(Disturb&& disturb, IsTold&& is_told) {
  std::atomic<bool> is_over = false;
  std::thread caller([&] {
    while (!is_over) disturb();
  });
  bool are_told = true;
  for (int fork = 0; fork < 20 && are_told; ++fork) are_told = child_is_told(is_told);
  is_over = true;
  caller.join();
  return are_told;
}

TEST(ForkedChild, FindsNoLockOfTheBackendTaken) {
  backend::Backend group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                         c10::make_intrusive<backend::Options>());
  EXPECT_TRUE(children_are_told([&] { group.getError(); },  // holds the lock much of the time
                                [&] { return group.getError() == c10d::ErrorType::COMM_ERROR; }));
}

TEST(ForkedChild, FindsNoLockOfAReceiveTaken) {
  backend::Backend group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                         c10::make_intrusive<backend::Options>());
  std::vector<at::Tensor> tensors{at::zeros({1})};
  const auto work = group.recv(tensors, 0, 0);  // from itself: nothing comes
  const auto is_told = [&] {
    const bool has_failed = work->isCompleted() && !work->isSuccess() && work->exception();
    return has_failed && refuses([&] { work->wait(); }) && refuses([&] { work->getFuture(); });
  };
  EXPECT_TRUE(children_are_told([&] { work->isCompleted(); }, is_told));
}

// A thread that makes a static object takes this lock of the C library's, which fork does not know of.
TEST(ForkedChild, NeedsNoLockThatStaticObjectsAreMadeUnder) {
  const HomeProcess home;
  char owner = 0;
  const auto register_for_the_end = [&] {
    abi::__cxa_atexit([](void*) {}, nullptr, &owner);
    abi::__cxa_finalize(&owner);
  };
  EXPECT_TRUE(children_are_told(register_for_the_end, [&] { return refuses([&] { home.check(); }); }));
}

}  // namespace
}  // namespace shardway::testing
