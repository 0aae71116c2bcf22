#include "record/log.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace shardway::testing {
namespace {

using namespace record;

TEST(Log, TroubleIsToldUnlessItIsQuiet) {
  EXPECT_EQ(level_of(nullptr, nullptr), LogLevel::trouble);
  EXPECT_EQ(level_of("", ""), LogLevel::trouble);
  EXPECT_EQ(level_of(nullptr, "0"), LogLevel::trouble);
  EXPECT_EQ(level_of(nullptr, "1"), LogLevel::nothing);
}

TEST(Log, InfoAndDebugTellMoreAndQuietCountsMore) {
  EXPECT_EQ(level_of("info", nullptr), LogLevel::info);
  EXPECT_EQ(level_of("debug", "0"), LogLevel::debug);
  EXPECT_EQ(level_of("debug", "1"), LogLevel::nothing);
}

TEST(Log, AnotherWordIsRefusedWithThoseThatThereAre) {
  try {
    (void)level_of("loud", nullptr);
    FAIL();
  } catch (const std::invalid_argument& mistake) {
    EXPECT_STREQ(mistake.what(), "SHARDWAY_LOG=loud is neither info nor debug");
  }
}

}  // namespace
}  // namespace shardway::testing
