// The store in which the ranks of a joint group meet.
#include "link/hub/meeting_place.h"

#include <gtest/gtest.h>

#include "link/talk/wire.h"

namespace shardway::testing {
namespace {

using link::MeetingPlace;
using link::MeetingVisitor;

// A place with one visitor in it.
class Visit {
 public:
  Visit()
      : visitor_(std::make_shared<MeetingVisitor>(
            MeetingVisitor{.answer = [this](const Json& said) { answers.push_back(said); },
                           .dismiss = [this] { ++dismissals; }})) {
    place.open();
    place.enter(visitor_);
  }

  Json ask(const Json& question) {
    place.hear(*visitor_, question);
    return answers.empty() ? Json() : answers.back();
  }

  MeetingPlace place;
  std::vector<Json> answers;
  int dismissals = 0;

 private:
  std::shared_ptr<MeetingVisitor> visitor_;
};

TEST(MeetingPlace, OneThatEndsDismissesItsVisitors) {
  Visit visit;
  visit.ask({{"do", "wait"}, {"keys", {"a", "b"}}});
  visit.ask({{"do", "withdraw"}});
  visit.ask({{"do", "wait"}, {"keys", {"a"}}});
  EXPECT_EQ(visit.answers, (std::vector<Json>{{{"is", "late"}}}));
  EXPECT_EQ(visit.dismissals, 0);
  const std::string name = visit.place.open();
  EXPECT_EQ(visit.dismissals, 1);
  EXPECT_TRUE(visit.place.admits(name));
  EXPECT_FALSE(visit.place.admits(""));
  EXPECT_FALSE(visit.place.admits(nullptr));
}

TEST(MeetingPlace, WhoWaitsIsAnsweredWhenTheLastKeyIsThere) {
  Visit visit;
  visit.ask({{"do", "wait"}, {"keys", {"a", "b"}}});
  const auto other =
      std::make_shared<MeetingVisitor>(MeetingVisitor{.answer = [](const Json&) {}, .dismiss = [] {}});
  visit.place.enter(other);
  visit.place.hear(*other, {{"do", "set"}, {"key", "b"}, {"value", "AA=="}});
  EXPECT_TRUE(visit.answers.empty());
  visit.place.hear(*other, {{"do", "add"}, {"key", "a"}, {"count", -3}});
  EXPECT_EQ(visit.answers, (std::vector<Json>{{{"is", "done"}}}));
}

TEST(MeetingPlace, WhatNoStoreHasIsRefused) {
  Visit visit;
  EXPECT_THROW(visit.ask({{"do", "burn"}, {"key", "a"}}), link::NotOurs);
  EXPECT_THROW(visit.ask({{"do", "set"}, {"key", "a"}, {"value", "?"}}), link::NotOurs);
  EXPECT_THROW(visit.ask({{"do", "get"}}), link::NotOurs);
  EXPECT_TRUE(visit.answers.empty());
}

}  // namespace
}  // namespace shardway::testing
