#include "engine/courier.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "thread_engine.h"

namespace shardway::testing {
namespace {

using Bytes = std::array<std::byte, 4>;
constexpr auto kSoon = std::chrono::milliseconds(150);
constexpr auto kLater = std::chrono::seconds(20);

struct Pair {
  std::shared_ptr<ThreadPost> post = std::make_shared<ThreadPost>(3);
  std::shared_ptr<ThreadEngine> first = std::make_shared<ThreadEngine>(post, 0);
  std::shared_ptr<ThreadEngine> second = std::make_shared<ThreadEngine>(post, 1);
};

std::string what_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const shm::PeerLost& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Courier, MessagesOfTwoCallsDoNotMeet) {
  const Pair pair;
  Courier sender(pair.first, kLater);
  Courier receiver(pair.second, kLater);
  const std::array<CallOfCourier, 2> sent = {sender.open(7), sender.open(7)};
  const std::array<CallOfCourier, 2> received = {receiver.open(7), receiver.open(7)};
  sender.send(sent[0], Bytes{std::byte{1}}, 1).wait();
  sender.send(sent[1], Bytes{std::byte{2}}, 1).wait();
  Bytes second = {};
  receiver.receive(received[1], second, 0).wait();
  Bytes first = {};
  receiver.receive(received[0], first, 0).wait();
  EXPECT_EQ(first[0], std::byte{1});
  EXPECT_EQ(second[0], std::byte{2});
}

TEST(Courier, ARankThatSendsNothingIsNamedAndTheGroupIsOver) {
  const Pair pair;
  Courier courier(pair.first, kSoon);
  const CallOfCourier call = courier.open(1);
  Bytes room = {};
  const std::string expected =
      "rank 1 could not be reached: nothing came from it, or was taken by it, within 150 ms";
  EXPECT_EQ(what_of([&] { courier.receive(call, room, 1).wait(); }), expected);
  EXPECT_EQ(what_of([&] { courier.open(2); }), expected);
}

TEST(Courier, AFarewellEndsAWaitAndNamesWhomTheOtherLost) {
  const Pair pair;
  Courier first(pair.first, kLater);
  Courier second(pair.second, kLater);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    second.give_up(1, "out of memory");
  });
  Bytes room = {};
  const CallOfCourier call = first.open(1);
  EXPECT_EQ(what_of([&] { first.receive(call, room, 1).wait(); }),
            "rank 1 could not be reached: out of memory");
  other.join();
}

TEST(Courier, AFarewellThatHasComeGoesBeforeWhatThisRankFound) {
  const Pair pair;
  Courier first(pair.first, kLater);
  Courier second(pair.second, kLater);
  second.give_up(1, "out of memory");  // tells rank 0, whose mate, rank 2, leaves because of it
  EXPECT_STREQ(first.give_up(2, "it left").what(), "rank 1 could not be reached: out of memory");
}

TEST(Courier, AMessageOfAnotherLengthIsAnError) {
  const Pair pair;
  Courier sender(pair.first, kLater);
  Courier receiver(pair.second, kLater);
  sender.send(sender.open(1), std::array<std::byte, 3>{}, 1).wait();
  Bytes room = {};
  const CallOfCourier call = receiver.open(1);
  EXPECT_EQ(what_of([&] { receiver.receive(call, room, 0).wait(); }),
            "rank 0 could not be reached: it sent 3 bytes where 4 were expected");
}

TEST(Courier, RoomMayBeLargerIfSaidSo) {
  const Pair pair;
  Courier sender(pair.first, kLater);
  Courier receiver(pair.second, kLater);
  sender.send(sender.open(1), std::array<std::byte, 3>{}, 1).wait();
  Bytes room = {};
  auto errand = receiver.receive(receiver.open(1), room, 0, Room::may_be_larger);
  errand.wait();
  EXPECT_EQ(errand.bytes(), 3);
}

// As where a call was dropped and another thread is to see it through.
TEST(Courier, AnEngineForOneThreadIsNotAskedByAnother) {
  const Pair pair;
  pair.first->serves_any_thread = false;
  Courier courier(pair.first, kLater);
  Bytes room = {};
  auto errand = courier.receive(courier.open(1), room, 1);
  std::string said;
  std::thread([&] { said = what_of([&] { errand.wait(); }); }).join();
  EXPECT_EQ(said, "rank 1 could not be reached: its message was dropped");
}

}  // namespace
}  // namespace shardway::testing
