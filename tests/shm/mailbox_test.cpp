// Messages between two ranks: order, tags, senders that leave, and what is freed.
#include "shm/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <thread>

#include "rank_runner.h"
#include "shm/errors.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::vector<std::byte> message(int64_t count, int value) {
  return std::vector<std::byte>(static_cast<size_t>(count), static_cast<std::byte>(value));
}

void send(shm::Group& group, int64_t to, int64_t tag, const std::vector<std::byte>& bytes) {
  group.mailbox().send(to, {.tag = tag, .kind = 1}, bytes);
}

shm::Receipt receive(shm::Group& group, std::optional<int64_t> from, int64_t tag,
                     std::vector<std::byte>& bytes) {
  const auto receipt = group.mailbox().ask({.from = from, .label = {.tag = tag, .kind = 1}, .to = bytes});
  group.mailbox().wait(receipt, 10s);
  return *receipt;
}

TEST(Mailbox, MessagesOfOneTagKeepTheirOrderAndTagsDoNotMix) {
  const auto body = [](shm::Group& group) {
    const int64_t peer = 1 - group.rank();
    for (int i = 0; i < 100; ++i) send(group, peer, i % 2, message(i * 700, i));
    for (int parity = 1; parity >= 0; --parity) {
      for (int i = parity; i < 100; i += 2) {
        std::vector<std::byte> got = message(i * 700, 255);
        receive(group, peer, parity, got);
        require(got == message(i * 700, i), "message " + std::to_string(i));
      }
    }
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

TEST(Mailbox, ReceiptsAreFulfilledInTheOrderInWhichTheyWereAskedFor) {
  const auto body = [](shm::Group& group) {
    if (group.rank() == 0) {
      send(group, 1, 0, message(8, 1));
      send(group, 1, 0, message(8, 2));
      return;
    }
    std::vector<std::byte> first(8);
    std::vector<std::byte> second(8);
    const auto one = group.mailbox().ask({.from = 0, .label = {.kind = 1}, .to = first});
    const auto two = group.mailbox().ask({.from = std::nullopt, .label = {.kind = 1}, .to = second});
    group.mailbox().wait(two, 10s);
    require(group.mailbox().is_done(one), "the first came after the second");
    require(first == message(8, 1) && second == message(8, 2) && two->sender == 0, "another order");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));  // the sender may have left by then
}

TEST(Mailbox, AnotherLengthOrKindIsToldAndNotStored) {
  const auto body = [](shm::Group& group) {
    if (group.rank() == 0) return send(group, 1, 0, message(5, 1));
    std::vector<std::byte> kept = message(4, 9);
    const shm::Receipt receipt = receive(group, 0, 0, kept);
    require(receipt.sent_bytes == 5 && receipt.sent_kind == 1 && kept == message(4, 9), "it was stored");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

void meet(shm::Group& group) {
  std::vector<std::byte> rows(static_cast<size_t>(group.size()) * 64);
  group.gather_notes({}, rows.data(), 64);
}

std::string loss_in(const std::function<void()>& call) {
  try {
    call();
  } catch (const shm::PeerLost& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Mailbox, WhatDoesNotComeInTimeEndsTheGroup) {
  const auto body = [](shm::Group& group) {
    std::vector<std::byte> bytes(1);
    if (group.rank() == 0) {
      const auto receipt = group.mailbox().ask({.from = 1, .label = {.kind = 1}, .to = bytes});
      const std::string expected = "rank 1 could not be reached: it sent nothing within 20 ms";
      require(loss_in([&] { group.mailbox().wait(receipt, 20ms); }) == expected, "the wait");
      const auto end = std::chrono::steady_clock::now() + 300ms;
      while (std::chrono::steady_clock::now() < end) {
        require(loss_in([&] { receive(group, 1, 0, bytes); }) == expected, "a late message was taken");
      }
      return;
    }
    std::this_thread::sleep_for(100ms);
    const std::string said = loss_in([&] { send(group, 0, 0, message(1, 3)); });
    require(said == "rank 0 could not be reached: a message that it waited for did not come in time", said);
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

TEST(Mailbox, TheMessageOfAReceiptThatWasGivenUpIsNobodys) {
  const auto body = [](shm::Group& group) {
    std::vector<std::byte> first(1);
    std::vector<std::byte> second(1);
    if (group.rank() == 0) {
      const auto patient = group.mailbox().ask({.from = 1, .label = {.kind = 1}, .to = first});
      require(!group.mailbox().wait_or_give_up(patient, 20ms), "nothing was sent");
      const auto asked = group.mailbox().ask({.from = std::nullopt, .label = {.kind = 1}, .to = first});
      std::thread other([&] {
        std::this_thread::sleep_for(50ms);
        group.mailbox().give_up(asked);
      });
      require(!group.mailbox().wait(asked, 10s), "it was given up meanwhile");
      other.join();
    }
    meet(group);  // the group goes on
    if (group.rank() == 1) {
      for (const int value : {3, 4, 5}) send(group, 0, 0, message(1, value));
      return;
    }
    receive(group, 1, 0, second);
    require(second == message(1, 5) && first == message(1, 0), "another's message");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

TEST(Mailbox, ARankThatWaitsForItselfIsToldSoAndLosesNothing) {
  const auto body = [](shm::Group& group) {
    std::vector<std::byte> bytes(1);
    EXPECT_THROW(receive(group, group.rank(), 0, bytes), std::invalid_argument);
    send(group, group.rank(), 0, message(1, 6));
    receive(group, group.rank(), 0, bytes);
    require(bytes == message(1, 6), "its own message");
  };
  EXPECT_NO_THROW(run_threads(2, body));
}

TEST(Mailbox, APeerThatWillNeverSendIsNamed) {
  const Endings endings = run_processes(3, [](shm::Group& group) {
    if (group.rank() == 1) raise(SIGKILL);
    std::vector<std::byte> bytes(1);
    try {
      receive(group, 1, 0, bytes);
    } catch (const shm::PeerLost& error) {
      require(error.peer() == 1, error.what());
      return;
    }
    throw std::runtime_error("a message of a dead rank came");
  });
  EXPECT_EQ(endings, (Endings{"", "signal 9", ""}));
}

TEST(Mailbox, ReadMessagesAreFreed) {
  const auto body = [](shm::Group& group) {
    const int64_t peer = 1 - group.rank();
    std::vector<std::byte> bytes(1 << 20);
    for (int i = 0; i < 50; ++i) {
      send(group, peer, 0, bytes);
      receive(group, peer, 0, bytes);
    }
    require(group.arena()->stats().in_use_bytes < int64_t{32} << 20, "50 MiB are still there");
  };
  EXPECT_NO_THROW(run_threads(2, body));
}

TEST(Mailbox, ThreadsOfOneRankReceiveSideBySide) {
  const auto body = [](shm::Group& group) {
    const int64_t peer = 1 - group.rank();
    std::vector<std::thread> threads;
    std::atomic<int> right{0};
    for (int tag = 0; tag < 3; ++tag) {
      threads.emplace_back([&, tag] {
        for (int i = 0; i < 50; ++i) {
          std::vector<std::byte> got(100);
          send(group, peer, tag, message(100, i));
          receive(group, peer, tag, got);
          right += got == message(100, i) ? 1 : 0;
        }
      });
    }
    std::vector<std::byte> rows(64 * 2);
    for (int i = 0; i < 50; ++i) group.gather_notes({}, rows.data(), 64);
    for (std::thread& thread : threads) thread.join();
    require(right == 150, std::to_string(right) + " of 150 came right");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

}  // namespace
}  // namespace shardway::testing
