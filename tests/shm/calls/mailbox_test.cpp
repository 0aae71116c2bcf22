// Messages between two ranks: order, tags, senders that leave, and what is freed.
#include "shm/calls/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "rank_runner.h"
#include "shm/memory/errors.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> message(int64_t count, int value) {
  return std::vector<std::byte>(static_cast<size_t>(count), static_cast<std::byte>(value));
}

void send(shm::SharedGroup& group, int64_t to, int64_t tag, const std::vector<std::byte>& bytes) {
  group.mailbox().send(to, {.tag = tag, .kind = 1}, bytes);
}

shm::Receipt receive(shm::SharedGroup& group, std::optional<int64_t> from, int64_t tag,
                     std::vector<std::byte>& bytes) {
  const auto receipt = group.mailbox().ask({.from = from, .label = {.tag = tag, .kind = 1}, .to = bytes});
  group.mailbox().wait(receipt, 10s);
  return *receipt;
}

TEST(Mailbox, MessagesOfOneTagKeepTheirOrderAndTagsDoNotMix) {
  const auto body = [](shm::SharedGroup& group) {
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
  const auto body = [](shm::SharedGroup& group) {
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
  const auto body = [](shm::SharedGroup& group) {
    if (group.rank() == 0) return send(group, 1, 0, message(5, 1));
    std::vector<std::byte> kept = message(4, 9);
    const shm::Receipt receipt = receive(group, 0, 0, kept);
    require(receipt.sent_bytes == 5 && receipt.sent_kind == 1 && kept == message(4, 9), "it was stored");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
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
  const auto body = [](shm::SharedGroup& group) {
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
    std::string said = "nothing";
    while (said == "nothing") said = loss_in([&] { send(group, 0, 1, message(1, 3)); });
    require(said == "rank 0 could not be reached: a message that it waited for did not arrive in time", said);
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

TEST(Mailbox, TheMessageOfAReceiptThatWasGivenUpIsNobodys) {
  const auto body = [](shm::SharedGroup& group) {
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
  const auto body = [](shm::SharedGroup& group) {
    std::vector<std::byte> bytes(1);
    EXPECT_THROW(receive(group, group.rank(), 0, bytes), std::invalid_argument);
    send(group, group.rank(), 0, message(1, 6));
    receive(group, group.rank(), 0, bytes);
    require(bytes == message(1, 6), "its own message");
  };
  EXPECT_NO_THROW(run_threads(2, body));
}

TEST(Mailbox, APeerThatWillNeverSendIsNamed) {
  const Endings endings = run_processes(3, [](shm::SharedGroup& group) {
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
  const auto body = [](shm::SharedGroup& group) {
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

TEST(Mailbox, WhatIsKeptAsideBeyondTheLimitStaysWithItsSender) {
  constexpr int kMessages = 100;
  const auto body = [](shm::SharedGroup& group) {
    std::vector<std::byte> got(1 << 20);
    if (group.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) send(group, 1, i % 2, message(1 << 20, i));
      send(group, 1, 2, message(1, 7));
      meet(group);
      meet(group);
      send(group, 1, 2, message(1, 8));  // frees what was read
      require(group.arena()->stats().in_use_bytes < int64_t{32} << 20, "100 MiB are still there");
      return;
    }
    std::vector<std::byte> last(1);
    receive(group, 0, 2, last);
    require(last == message(1, 7), "the message behind the others");
    meet(group);
    for (int parity = 1; parity >= 0; --parity) {
      for (int i = parity; i < kMessages; i += 2) {
        receive(group, 0, parity, got);
        require(got == message(1 << 20, i), "message " + std::to_string(i));
      }
    }
    meet(group);
    receive(group, 0, 2, last);
    require(last == message(1, 8), "the last message");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

// What a rank that keeps to no rule finds in its own memory: the first message that it sent, and the line of
// its board that counts them.
struct Forger {
  explicit Forger(shm::SharedGroup& group) : base(const_cast<std::byte*>(group.arena()->base())) {
    const std::vector<std::byte> sign = message(64, 0xa7);
    send(group, 0, 3, sign);
    const int64_t end = group.arena()->stats().committed_bytes;
    for (int64_t at = 64; at + 64 <= end && head == nullptr; at += 64) {
      if (std::memcmp(base + at, sign.data(), sign.size()) == 0)
        head = reinterpret_cast<shm::MessageHead*>(base + at - 64);
    }
    const int64_t offset = reinterpret_cast<std::byte*>(head) - base;
    for (int64_t at = 64; at + 64 <= end && pair == nullptr; at += 64) {
      auto* line = reinterpret_cast<shm::PairLine*>(base + at);
      if (line->first_message.load() == offset && line->sent.load() == 1) pair = line;
    }
    require(head != nullptr && pair != nullptr, "there is nothing to forge");
  }
  int64_t offset() const { return reinterpret_cast<std::byte*>(head) - base; }

  std::byte* base;
  shm::MessageHead* head = nullptr;
  shm::PairLine* pair = nullptr;
};

int64_t private_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "RssAnon:") break;
  }
  int64_t kibibytes = 0;
  status >> kibibytes;
  return kibibytes << 10;
}

// Rank 1 forges; rank 0 waits for a message of it that never comes.
std::string failure_of_honest(const std::function<void(Forger&)>& forge) {
  const Endings endings = run_processes(2, [&](shm::SharedGroup& group) {
    if (group.rank() == 1) {
      Forger forger(group);
      forge(forger);
      meet(group);
      try {
        meet(group);  // stays until rank 0 has given the group up, however slow it is
      } catch (const shm::PeerLost&) {
      }
      return;
    }
    meet(group);
    const int64_t before = private_bytes();
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::byte> bytes(1);
    const auto receipt = group.mailbox().ask({.from = 1, .label = {.tag = 9, .kind = 1}, .to = bytes});
    std::string said = "nothing";
    try {
      group.mailbox().wait(receipt, 200ms);
    } catch (const std::exception& error) {
      said = error.what();
    }
    const auto took = std::chrono::steady_clock::now() - start;
    require(took < 10s, "it noticed no timeout");
    require(private_bytes() - before < int64_t{512} << 20, "the peer filled this rank's memory");
    require(group.is_lost(), "the group goes on");
    throw std::runtime_error(said);
  });
  return endings[0];
}

constexpr const char* kNone = "rank 1 sent an invalid message: a message at ";

TEST(Mailbox, AChainThatLeadsToItselfIsRefused) {
  const std::string said = failure_of_honest([](Forger& forger) {
    forger.head->next.store(forger.offset());
    forger.pair->sent.store(UINT64_MAX);
  });
  EXPECT_EQ(said.find(kNone), 0U) << said;
  EXPECT_NE(said.find("follows itself"), std::string::npos) << said;
}

TEST(Mailbox, AChainThatGoesRoundFillsNoMemoryAndHasAnEnd) {
  const std::string said = failure_of_honest([](Forger& forger) {
    auto* other = reinterpret_cast<shm::MessageHead*>(forger.base + forger.offset() + 64);
    other->label = {.tag = 5};
    other->bytes = 0;
    other->next.store(forger.offset());
    forger.head->next.store(forger.offset() + 64);
    forger.pair->sent.store(UINT64_MAX);
  });
  const bool is_timeout = said == "rank 1 could not be reached: it sent nothing within 200 ms";
  EXPECT_TRUE(is_timeout || said.find("follows itself") != std::string::npos) << said;
}

TEST(Mailbox, AMessageThatCannotBeIsRefused) {
  const auto linked_to = [](int64_t offset) {
    return failure_of_honest([offset](Forger& forger) {
      forger.head->next.store(offset);
      forger.pair->sent.store(2);
    });
  };
  for (const int64_t offset : {int64_t{0}, int64_t{-64}, int64_t{4}, int64_t{1} << 40, INT64_MAX, INT64_MIN})
    EXPECT_EQ(linked_to(offset), kNone + std::to_string(offset) + " is none");
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
    const std::string said = failure_of_honest([bytes](Forger& forger) { forger.head->bytes = bytes; });
    EXPECT_NE(said.find("is longer than its sender's memory"), std::string::npos) << said;
  }
}

TEST(Mailbox, ThreadsOfOneRankReceiveSideBySide) {
  const auto body = [](shm::SharedGroup& group) {
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
    for (int i = 0; i < 50; ++i) group.gather_notes({.rows = rows.data(), .row_bytes = 64});
    for (std::thread& thread : threads) thread.join();
    require(right == 150, std::to_string(right) + " of 150 came right");
  };
  EXPECT_EQ(run_processes(2, body), (Endings{"", ""}));
}

}  // namespace
}  // namespace shardway::testing
