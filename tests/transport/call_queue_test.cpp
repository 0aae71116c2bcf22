// Who releases what a posted call holds.
#include "transport/common/call_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace shardway::testing {
namespace {

// Something that notes which thread released it.
std::shared_ptr<int> noting(std::thread::id& released_by) {
  return {new int, [&released_by](const int* held) {
            released_by = std::this_thread::get_id();
            delete held;
          }};
}

TEST(CallQueue, WhoWaitsForACallReleasesWhatItHolds) {
  CallQueue queue;
  std::thread::id released_by;
  const auto posted = queue.post([held = noting(released_by)] {});
  posted->wait();
  EXPECT_EQ(released_by, std::this_thread::get_id());
}

TEST(CallQueue, WhoDropsACallThatIsOverReleasesWhatItHolds) {
  CallQueue queue;
  std::thread::id released_by;
  auto dropped = queue.post([held = noting(released_by)] {});
  queue.post([] {})->wait();  // the call before it is over then
  EXPECT_EQ(released_by, std::thread::id());
  dropped.reset();
  EXPECT_EQ(released_by, std::this_thread::get_id());
}

TEST(CallQueue, ADroppedCallReleasesWhatItHoldsOnceItIsOver) {
  CallQueue queue;
  std::thread::id released_by;
  (void)queue.post([held = noting(released_by)] {});
  queue.post([] {})->wait();
  EXPECT_NE(released_by, std::thread::id());
}

}  // namespace
}  // namespace shardway::testing
