// How a process greets the one that holds a link, and what it makes of others that listen there.
#include "link/talk/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "link/hub/membership.h"
#include "link/talk/secret.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;
using link::Claim;
using link::HubConnection;
using link::Inbox;
using link::packed;

// The other end of a connection, which says what a test wants.
class Hub {
 public:
  Hub() {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    here_ = shm::File(ends[0]);
    there_ = shm::File(ends[1]);
  }

  shm::File take_other_end() { return std::move(there_); }
  void say(const std::string& bytes) {
    EXPECT_EQ(send(here_.get(), bytes.data(), bytes.size(), 0), bytes.size());
  }
  void hang_up() { here_ = shm::File(); }

  Json hear() {
    while (true) {
      if (auto message = inbox_.next()) return *message;
      char some[512];
      const ssize_t came = recv(here_.get(), some, sizeof(some), 0);
      if (came <= 0) return nullptr;
      inbox_.add({some, static_cast<size_t>(came)});
    }
  }

  // Greets as a hub does, knowing this secret.
  void admit(const std::string& secret) {
    say(packed({{"shardway_link", 2}, {"nonce", "00ff"}}));
    const Json newcomer = hear();
    const Json said =
        Json::array({"00ff", newcomer.at("nonce"), newcomer.at("claim"), newcomer.at("meeting")});
    EXPECT_EQ(newcomer.at("proof"), link::proof("open", "member", said));
    say(packed({{"is", "welcome"},
                {"hub", Claim{.role = "trainer", .rank = 0, .size = 2, .process = "p", .job = ""}.said()},
                {"proof", link::proof(secret, "hub", said)}}));
  }

 private:
  shm::File here_;
  shm::File there_;
  Inbox inbox_;
};

link::Instant deadline() { return link::Instant::clock::now() + 20s; }

HubConnection connected(Hub& hub) {
  return {hub.take_other_end(), Claim::own("engine", 0, 1), "open", deadline()};
}

std::string refusal_by(const std::function<void(Hub&)>& greet) {
  Hub hub;
  std::jthread other([&] { greet(hub); });
  try {
    connected(hub);
    return "admitted";
  } catch (const link::NotAdmitted& refusal) {
    return std::string(refusal.is_final() ? "final: " : "") + refusal.what();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(LinkConnection, AQuestionGetsTheNextAnswerThatIsNoNudge) {
  Hub hub;
  std::jthread other([&] {
    hub.admit("open");
    EXPECT_EQ(hub.hear(), (Json{{"do", "join"}}));
    hub.say(packed({{"is", "nudge"}}) + packed({{"is", "joined"}}));
    EXPECT_EQ(hub.hear(), (Json{{"do", "leave"}}));
  });
  HubConnection connection = connected(hub);
  EXPECT_EQ(connection.hub().role, "trainer");
  EXPECT_EQ(connection.ask({{"do", "join"}}, deadline()), (Json{{"is", "joined"}}));
  EXPECT_FALSE(connection.has_news());
  connection.leave();
}

TEST(LinkConnection, WhoDoesNotKnowTheSecretIsNotBelieved) {
  EXPECT_EQ(refusal_by([](Hub& hub) { hub.admit("other"); }),
            "final: who listens there does not know the secret");
}

TEST(LinkConnection, AnotherVersionIsNamed) {
  EXPECT_EQ(refusal_by([](Hub& hub) {
              hub.say(packed({{"shardway_link", 3}, {"nonce", "00"}}));
            }),
            "final: it speaks version 3 of the link, this process version 2");
}

TEST(LinkConnection, ARefusalSaysWhy) {
  EXPECT_EQ(refusal_by([](Hub& hub) {
              hub.say(packed({{"shardway_link", 2}, {"nonce", "00"}}));
              hub.hear();
              hub.say(packed({{"is", "refused"}, {"why", "it is taken"}, {"is_final", false}}));
            }),
            "it is taken");
}

TEST(LinkConnection, WhatIsNoHubIsAnError) {
  EXPECT_NE(
      refusal_by([](Hub& hub) { hub.say("HTTP/1.1 400 Bad Request\r\n"); }).find("bytes where at most 4096"),
      std::string::npos);
  EXPECT_NE(refusal_by([](Hub& hub) {
              hub.say(packed({{"shardway_link", 2}, {"nonce", 7}}));
            }).find("nonce"),
            std::string::npos);
  EXPECT_NE(refusal_by([](Hub& hub) { hub.hang_up(); }).find("closed"), std::string::npos);
}

TEST(LinkConnection, ALateAnswerIsWithdrawn) {
  Hub hub;
  std::jthread other([&] {
    hub.admit("open");
    hub.hear();
    EXPECT_EQ(hub.hear(), (Json{{"do", "withdraw"}}));
    hub.say(packed({{"is", "late"}, {"why", "nobody came"}}));
  });
  HubConnection connection = connected(hub);
  const Json answer = connection.ask({{"do", "receive"}}, link::Instant::clock::now() + 10ms);
  EXPECT_EQ(link::text_in(answer, "why"), "nobody came");
}

TEST(LinkConnection, AHubThatEndsIsGone) {
  Hub hub;
  std::jthread other([&] {
    hub.admit("open");
    hub.hear();
    hub.hang_up();
  });
  HubConnection connection = connected(hub);
  EXPECT_THROW(connection.ask({{"do", "join"}}, deadline()), link::HubGone);
  EXPECT_TRUE(connection.has_news());
  EXPECT_THROW(connection.ask({{"do", "join"}}, deadline()), link::HubGone);
}

TEST(LinkAddress, IsAHostAndAPort) {
  EXPECT_EQ(to_string(link::LinkAddress::read("tcp://10.0.0.1:29700")), "tcp://10.0.0.1:29700");
  EXPECT_EQ(to_string(link::LinkAddress::read("[::1]:29700")), "tcp://[::1]:29700");
  for (const char* text : {"", "10.0.0.1", "tcp://:1", "udp://a:1", "a:0", "a:65536", "a:1x", "tcp://a:1/b"})
    EXPECT_THROW(link::LinkAddress::read(text), std::invalid_argument) << text;
}

TEST(LinkMembership, NobodyAtTheAddressIsSaidAtTheDeadline) {
  link::Membership membership(link::LinkAddress::read("127.0.0.1:1"), Claim::own("engine", 1, 2), "open");
  try {
    membership.connect(link::Instant::clock::now() + 50ms);
    FAIL();
  } catch (const link::TooLate& error) {
    EXPECT_NE(std::string(error.what()).find("tcp://127.0.0.1:1: Connection refused"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace shardway::testing
