#include "shm/join/pins.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "shm/join/handshake.h"

namespace shardway::shm {
namespace {

std::string refusal_of_text(std::string_view text) {
  try {
    pins_of(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST(TuningPins, WordsPinWhatTheyNameInAnyOrder) {
  EXPECT_EQ(pins_of(""), TuningPins{});
  EXPECT_EQ(pins_of("swap=1"), (TuningPins{.swap = 1}));
  EXPECT_EQ(pins_of("hand_back=0"), (TuningPins{.hand_back = 0}));
  EXPECT_EQ(pins_of("swap=1,hand_back=0"), (TuningPins{.swap = 1, .hand_back = 0}));
  EXPECT_EQ(pins_of("hand_back=0,swap=1"), (TuningPins{.swap = 1, .hand_back = 0}));
}

TEST(TuningPins, TheirTextGivesThemAgain) {
  EXPECT_EQ(text_of(TuningPins{}), "nothing");
  for (const char* text : {"swap=0", "hand_back=1", "swap=1,hand_back=0"})
    EXPECT_EQ(text_of(pins_of(text)), text);
}

TEST(TuningPins, WhatIsNotKnownIsRefusedWithWhatIsAllowed) {
  for (const char* text : {"swop=1", "swap", "swap=", "swap=2", "swap=true", "swap=1,", ",swap=1",
                           "swap=1;hand_back=0", "swap=1,swap=0", " swap=1", "=1", ",", "swap=1=1"}) {
    const std::string why = refusal_of_text(text);
    EXPECT_EQ(why.find("SHARDWAY_TUNING=" + std::string(text) + ": "), 0U) << text << " gave: " << why;
    EXPECT_NE(why.find("allowed are swap=0 or swap=1 and hand_back=0 or hand_back=1"), std::string::npos)
        << why;
  }
  EXPECT_NE(refusal_of_text("swop=1").find("\"swop=1\" is not known"), std::string::npos);
  EXPECT_NE(refusal_of_text("swap=2").find("\"swap=2\" does not end in =0 or =1"), std::string::npos);
  EXPECT_NE(refusal_of_text("swap=1,swap=0").find("swap is there twice"), std::string::npos);
}

TEST(TuningPins, RanksThatPinAlikeMakeNoMistake) {
  EXPECT_EQ(mistake_of({Hello{}, Hello{}}), std::nullopt);
  EXPECT_EQ(mistake_of({Hello{.pins = {.swap = 1}}, Hello{.pins = {.swap = 1}}}), std::nullopt);
}

TEST(TuningPins, ThatDifferAreAMistakeThatNamesBothRanks) {
  EXPECT_EQ(mistake_of({Hello{.pins = {.swap = 1}}, Hello{.pins = {.swap = 1}}, Hello{}}),
            "SHARDWAY_TUNING pins swap=1 on rank 0 and nothing on rank 2; set it alike on every rank");
}

// Another version may lay its words out in another way.
TEST(TuningPins, OfAnotherVersionAreNotLookedAt) {
  EXPECT_EQ(mistake_of({Hello{.pins = {.swap = 1}}, Hello{.version = kHandshakeVersion + 1}}), std::nullopt);
}

}  // namespace
}  // namespace shardway::shm
