// What the process that holds a link answers, message by message.
#include "link/hub/registry.h"

#include <gtest/gtest.h>

#include "link/talk/connection.h"

namespace shardway::testing {
namespace {

using link::Claim;
using link::LinkRegistry;

const Json kPlain = {{"shape", {2}}, {"dtype", "float32"}};

// A rank of a role, and what it was told.
class Rank {
 public:
  Rank(LinkRegistry& registry, const std::string& role, int64_t rank = 0, int64_t size = 1)
      : registry_(registry), member_(registry.admit(Claim::own(role, rank, size), [this](const Json& said) {
          told.push_back(said);
        })) {
    ask({{"do", "join"}});
  }

  void ask(const Json& question) { registry_.hear(member_, question); }
  void die() { registry_.lose(member_, "died"); }

  void declare(const std::string& call, const Json& tensors, const Json& more = Json::object()) {
    Json message = {
        {"do", call}, {"tensors", tensors}, {"problems", Json::array()}, {"cast", false}, {"version", 0}};
    message.update(more);
    ask(message);
  }

  std::string last() const { return told.back().at("is").get<std::string>(); }
  std::string why() const { return told.back().at("why").get<std::string>(); }

  Json farewell() const { return registry_.farewell(*member_); }

  std::vector<Json> told;

 private:
  LinkRegistry& registry_;
  link::SharedMember member_;
};

// A trainer and a generator of one rank each that have agreed on a model.
struct Agreed {
  LinkRegistry registry{Claim::own("trainer", 0, 1)};
  Rank trainer{registry, "trainer"};
  Rank generator{registry, "generator"};

  Agreed() {
    trainer.declare("publish", {{"w", kPlain}});
    generator.declare("subscribe", {{"w", kPlain}});
  }

  void begin_version() {
    trainer.ask({{"do", "send"}});
    generator.ask({{"do", "receive"}});
    EXPECT_EQ(trainer.last(), "go");
    EXPECT_EQ(generator.last(), "go");
  }
};

TEST(LinkRegistry, WhoSubscribesDuringATransferBringsTheRanksBackToTheHub) {
  Agreed link;
  std::vector<std::unique_ptr<Rank>> guests;
  for (const bool comes_meanwhile : {false, true}) {
    link.begin_version();
    link.trainer.ask({{"do", "done"}});
    if (comes_meanwhile) {
      guests.push_back(std::make_unique<Rank>(link.registry, "guest"));
      guests.back()->declare("subscribe", {{"w", kPlain}});
    }
    link.generator.ask({{"do", "done"}});
    for (const Rank* rank : {&link.trainer, &link.generator}) {
      EXPECT_EQ(rank->last(), "complete");
      EXPECT_EQ(rank->told.back().at("everywhere"), !comes_meanwhile);  // the next one goes without the hub
    }
  }
}

TEST(LinkRegistry, ARosterIsSentOncePerGroup) {
  Agreed link;
  link.begin_version();
  const Json first = link.generator.told.back();
  const Json whole = {{"shape", {2}},
                      {"dtype", "float32"},
                      {"mesh_shape", {1}},
                      {"mesh", {0}},
                      {"placements", Json::array({Json::array({"R"})})},
                      {"order", Json::array({Json::array()})}};
  const Json& roster = first.at("roster");
  EXPECT_EQ(roster.at("source"), "trainer");
  EXPECT_EQ(roster.at("roles"), Json::parse(R"([["trainer", 1], ["generator", 1]])"));
  EXPECT_EQ(roster.at("models"), (Json{{"trainer", {{"w", whole}}}, {"generator", {{"w", whole}}}}));
  link.trainer.ask({{"do", "done"}});
  link.generator.ask({{"do", "done"}});
  link.begin_version();
  EXPECT_FALSE(link.generator.told.back().contains("roster"));
  EXPECT_EQ(link.generator.told.back().at("generation"), first.at("generation"));
  EXPECT_EQ(link.generator.told.back().at("version"), 2);
}

TEST(LinkRegistry, ANameThatWasGivenWronglyIsNotSaidToBeMissing) {
  LinkRegistry registry(Claim::own("trainer", 0, 1));
  Rank trainer(registry, "trainer");
  Rank generator(registry, "generator");
  trainer.declare("publish", {{"w", kPlain}});
  generator.declare(
      "subscribe", Json::object(),
      {{"problems", {"w: it is a list, not a DTensor, MeshTensor or Tensor"}}, {"refused", {"w"}}});
  EXPECT_EQ(generator.last(), "refused");
  EXPECT_EQ(generator.why(),
            "what role generator subscribes to: 1 difference\n"
            "  w: it is a list, not a DTensor, MeshTensor or Tensor (role generator rank 0)");
}

TEST(LinkRegistry, WhoWaitsForASubscriberInVainHearsWhoWasRefused) {
  LinkRegistry registry(Claim::own("trainer", 0, 1));
  Rank trainer(registry, "trainer");
  trainer.declare("publish", {{"w", kPlain}});
  trainer.ask({{"do", "send"}});
  registry.note_refusal("a process at 127.0.0.1 has another secret");
  trainer.ask({{"do", "withdraw"}});
  EXPECT_EQ(
      trainer.told.back(),
      (Json{{"is", "late"},
            {"why", "no job subscribed; refused meanwhile: a process at 127.0.0.1 has another secret"}}));
}

TEST(LinkRegistry, AVersionThatARankDiedInIsTornForThoseThatLackIt) {
  Agreed link;
  Rank other(link.registry, "other");
  other.declare("subscribe", {{"w", kPlain}});
  link.trainer.ask({{"do", "send"}});
  link.generator.ask({{"do", "receive"}});
  other.ask({{"do", "receive"}});
  link.trainer.ask({{"do", "done"}});
  other.ask({{"do", "done"}});
  link.generator.die();
  EXPECT_EQ(link.trainer.last(), "torn");
  EXPECT_EQ(link.trainer.told.back().at("gone"), Json::array({"generator"}));
  EXPECT_EQ(link.trainer.why(), "version 1 did not arrive whole: role generator rank 0 died");
  EXPECT_EQ(other.last(), "complete");
}

TEST(LinkRegistry, ARoleEndsWithItsFirstRank) {
  LinkRegistry registry(Claim::own("trainer", 0, 1));
  Rank trainer(registry, "trainer");
  Rank first(registry, "generator", 0, 2);
  Rank second(registry, "generator", 1, 2);
  trainer.declare("publish", {{"w", kPlain}});
  first.declare("subscribe", {{"w", kPlain}});
  second.die();
  EXPECT_EQ(first.told.back(),
            (Json{{"is", "closed"}, {"why", "role generator rank 1 died: this job has to connect again"}}));
  first.ask({{"do", "receive"}});
  EXPECT_EQ(first.last(), "closed");
  Rank again(registry, "generator", 0, 3);  // another job may have the name at once
  first.die();
  EXPECT_EQ(again.told.size(), 0);
}

TEST(LinkRegistry, RanksOfARoleMakeTheSameCall) {
  LinkRegistry registry(Claim::own("trainer", 0, 2));
  Rank first(registry, "trainer", 0, 2);
  Rank second(registry, "trainer", 1, 2);
  EXPECT_EQ(first.last(), "joined");
  first.declare("publish", {{"w", kPlain}});
  second.ask({{"do", "receive"}});
  for (const Rank* rank : {&first, &second})
    EXPECT_EQ(rank->why(), "the ranks of role trainer differ: rank 0 called publish, rank 1 called receive");
}

TEST(LinkRegistry, APlaceIsTakenOnce) {
  LinkRegistry registry(Claim::own("trainer", 0, 2));
  Rank first(registry, "trainer", 0, 2);
  const auto refusal = [&](int64_t rank, int64_t size) {
    try {
      const Rank newcomer(registry, "trainer", rank, size);
      return std::string("admitted");
    } catch (const link::NotAdmitted& error) {
      return std::string(error.is_final() ? "final: " : "") + error.what();
    }
  };
  EXPECT_EQ(refusal(1, 3),
            "final: role trainer rank 1 says that the role has 3 ranks, but role trainer rank 0 said 2");
  EXPECT_NE(refusal(0, 2).find("role trainer rank 0 is taken by process"), std::string::npos);
}

TEST(LinkRegistry, TheLastWordsSayWhoIsGoneOrToLookForAnotherHub) {
  Agreed link;
  Rank idle(link.registry, "idle");
  EXPECT_EQ(link.generator.farewell(),
            (Json{{"is", "lost"},
                  {"gone", {"trainer"}},
                  {"why", "the publisher is gone: role trainer rank 0 left the link"}}));
  EXPECT_EQ(link.trainer.farewell().at("is"), "closed");
  EXPECT_EQ(idle.farewell(), (Json{{"is", "moved"}}));
}

}  // namespace
}  // namespace shardway::testing
