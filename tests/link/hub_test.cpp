// A hub and processes that connect to it, over loopback.
#include "link/hub/hub.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <thread>

#include "link/hub/membership.h"
#include "link/talk/wire.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;
using link::Claim;
using link::HubConnection;
using link::Instant;
using link::LinkAddress;
using link::LinkHub;
using link::Membership;

Instant soon() { return Instant::clock::now() + 20s; }

// A port that nobody listens at.
LinkAddress free_address() {
  const shm::File made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(where);
  if (bind(made.get(), reinterpret_cast<sockaddr*>(&where), bytes) != 0 ||
      getsockname(made.get(), reinterpret_cast<sockaddr*>(&where), &bytes) != 0)
    throw std::runtime_error("no port");
  return {.host = "127.0.0.1", .port = ntohs(where.sin_port)};
}

struct Held {
  LinkAddress address = free_address();
  LinkHub hub{address.listen(), "open", Claim::own("trainer", 0, 1)};

  HubConnection connected(const std::string& role, const std::string& secret = "open",
                          const std::optional<std::string>& meeting = std::nullopt) const {
    return {address.dial(soon()), Claim::own(role, 0, 1), secret, soon(), meeting};
  }

  std::string refusal(const std::string& role, const std::string& secret,
                      const std::optional<std::string>& meeting = std::nullopt) const {
    try {
      connected(role, secret, meeting);
      return "admitted";
    } catch (const link::NotAdmitted& refusal) {
      return refusal.what();
    }
  }
};

// Whether the other side closes a connection, dropping what it says before.
bool is_closed_soon(const shm::File& socket) {
  char some[4096];
  while (link::is_ready_before(socket.get(), POLLIN, soon())) {
    if (recv(socket.get(), some, sizeof(some), 0) <= 0) return true;
  }
  return false;
}

Json declaration(const std::string& call) {
  return {{"do", call},
          {"tensors", {{"w", {{"shape", {2}}, {"dtype", "float32"}}}}},
          {"problems", Json::array()},
          {"cast", false},
          {"version", 0}};
}

TEST(LinkHub, AnswersThoseWhoKnowTheSecret) {
  const Held held;
  HubConnection connection = held.connected("engine");
  EXPECT_EQ(connection.hub().role, "trainer");
  EXPECT_EQ(connection.ask({{"do", "join"}}, soon()), (Json{{"is", "joined"}}));
  EXPECT_EQ(held.refusal("other", "shut"), "the secret is not that of role trainer rank 0");
  EXPECT_EQ(held.refusal("other", "open", "nowhere"), "that meeting is over");
  EXPECT_NE(held.refusal("engine", "open").find("role engine rank 0 is taken by process"), std::string::npos);
}

TEST(LinkHub, DropsWhoeverSaysWhatCannotBeUnderstood) {
  const Held held;
  const std::string greeting = link::packed({{"shardway_link", 2}, {"claim", 7}});
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), greeting, std::string(8, '\0')}) {
    const shm::File stranger = held.address.dial(soon());
    ASSERT_EQ(send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    EXPECT_TRUE(is_closed_soon(stranger));
  }
  HubConnection member = held.connected("engine");
  EXPECT_THROW(member.ask({{"done", "join"}}, soon()), link::HubGone);
  EXPECT_EQ(held.connected("engine").ask({{"do", "join"}}, soon()), (Json{{"is", "joined"}}));
}

TEST(LinkHub, NamesTheVersionOfANewcomer) {
  const Held held;
  const shm::File newcomer = held.address.dial(soon());
  const std::string bytes = link::packed({{"shardway_link", 3}});
  ASSERT_EQ(send(newcomer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
  link::Inbox inbox;
  for (int heard = 0; heard < 2;) {
    char some[4096];
    ASSERT_TRUE(link::is_ready_before(newcomer.get(), POLLIN, soon()));
    const ssize_t came = recv(newcomer.get(), some, sizeof(some), 0);
    ASSERT_GT(came, 0);
    inbox.add({some, static_cast<size_t>(came)});
    while (const auto message = inbox.next()) {
      if (heard++ == 0) continue;  // the hub's own greeting
      EXPECT_EQ(link::text_in(*message, "why"), "this link speaks version 2, the newcomer version 3");
    }
  }
}

TEST(LinkHub, OneThatLeavesHasLastWordsAndOneThatDiesHasNone) {
  for (const bool leaves : {true, false}) {
    auto held = std::make_unique<Held>();
    HubConnection connection = held->connected("engine");
    connection.ask({{"do", "join"}}, soon());
    if (leaves) held->hub.close();
    held = nullptr;
    try {
      connection.ask({{"do", "receive"}}, soon());
      FAIL();
    } catch (const link::HubMoved&) {
      EXPECT_TRUE(leaves);
    } catch (const link::HubGone&) {
      EXPECT_FALSE(leaves);
    }
  }
}

// The connections are closed, but the hub may not have seen it yet.
TEST(LinkHub, MayLeaveWhenTheOthersAreGone) {
  Held held;
  for (int i = 0; i < 20; ++i) held.connected("engine" + std::to_string(i)).ask({{"do", "join"}}, soon());
  held.hub.close();
}

TEST(LinkHub, AChildOfForkDoesNotHideTheDeathOfItsParent) {
  auto held = std::make_unique<Held>();
  HubConnection connection = held->connected("engine");
  connection.ask({{"do", "join"}}, soon());
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    char word = 0;
    close(ends[1]);
    (void)!read(ends[0], &word, 1);  // until the parent has seen what it should
    held = nullptr;                  // which touches nothing of its parent's
    _exit(0);
  }
  close(ends[0]);
  held = nullptr;
  EXPECT_THROW(connection.ask({{"do", "receive"}}, soon()), link::HubGone);
  close(ends[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LinkMembership, TheFirstRankZeroHoldsTheLink) {
  const LinkAddress address = free_address();
  Membership trainer(address, Claim::own("trainer", 0, 1), "open");
  Membership engine(address, Claim::own("engine", 0, 1), "open");
  trainer.connect(soon());
  engine.connect(soon());
  EXPECT_EQ(engine.connection()->hub().role, "trainer");
  for (Membership* one : {&trainer, &engine})
    EXPECT_EQ(one->connection()->ask({{"do", "join"}}, soon()), (Json{{"is", "joined"}}));
  const Json published = trainer.connection()->ask(declaration("publish"), soon());
  EXPECT_EQ(published, (Json{{"is", "published"}, {"version", 0}}));
  const Json subscribed = engine.connection()->ask(declaration("subscribe"), soon());
  EXPECT_EQ(subscribed, (Json{{"is", "subscribed"}, {"version", 0}}));
  trainer.leave();
  EXPECT_EQ(engine.connection()->ask({{"do", "receive"}}, soon()).at("is"), "lost");
  engine.forget_connection();
  engine.connect(soon());
  EXPECT_EQ(engine.connection()->hub().role, "engine");
}

TEST(LinkMembership, AnotherThreadMayEndItsWaitsForGood) {
  const Held held;
  Membership engine(held.address, Claim::own("engine", 0, 1), "open");
  engine.connect(soon());
  engine.connection()->ask({{"do", "join"}}, soon());
  std::thread another([&] {
    std::this_thread::sleep_for(50ms);
    engine.give_up();
  });
  const Instant start = Instant::clock::now();
  EXPECT_THROW(engine.connection()->ask(declaration("subscribe"), soon()), link::HubGone);
  another.join();
  engine.forget_connection();
  Membership elsewhere(free_address(), Claim::own("engine", 1, 2), "open");
  elsewhere.give_up();
  EXPECT_THROW(elsewhere.connect(soon()), link::TooLate);
  EXPECT_LT(Instant::clock::now() - start, 5s);
}

}  // namespace
}  // namespace shardway::testing
