// Ranks of other builds share memory with this one: what they say first, and what they then read of one
// another, lies where it lay.
#include "shm/join/handshake.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "shm/board/board.h"
#include "shm/calls/message.h"

namespace shardway::shm {
namespace {

// If one of these numbers changes, kHandshakeVersion must change too.
TEST(Handshake, SixthVersionHasThisHello) {
  ASSERT_EQ(kHandshakeVersion, 6U);
  EXPECT_EQ(sizeof(Hello), 720U);
  EXPECT_EQ(offsetof(Hello, version), 0U);
  EXPECT_EQ(offsetof(Hello, is_willing), 8U);
  EXPECT_EQ(offsetof(Hello, arena), 16U);
  EXPECT_EQ(offsetof(Hello, doorway), 32U);
  EXPECT_EQ(offsetof(Hello, secret), 40U);
  EXPECT_EQ(offsetof(Hello, memory), 56U);
  EXPECT_EQ(offsetof(Hello, host), 72U);
  EXPECT_EQ(offsetof(Hello, pid), 120U);
  EXPECT_EQ(offsetof(Hello, cores), 128U);
  EXPECT_EQ(offsetof(Hello, cores_at_cache), 256U);
  EXPECT_EQ(offsetof(Hello, quota), 384U);
  EXPECT_EQ(offsetof(Hello, processor), 392U);
  EXPECT_EQ(offsetof(Hello, pins), 393U);
  EXPECT_EQ(offsetof(Hello, measured), 395U);
  EXPECT_EQ(offsetof(Hello, is_mistaken), 397U);
  EXPECT_EQ(offsetof(Hello, why_not), 398U);
  EXPECT_EQ(sizeof(Verdict), 336U);
  EXPECT_EQ(offsetof(Verdict, board), 8U);
  EXPECT_EQ(offsetof(Verdict, why_not), 16U);
}

TEST(Handshake, SixthVersionHasThisBoard) {
  ASSERT_EQ(kHandshakeVersion, 6U);
  EXPECT_EQ(offsetof(BoardHead, asleep), 4U);
  EXPECT_EQ(offsetof(BoardHead, bell), 64U);
  EXPECT_EQ(offsetof(BoardHead, finished), 128U);
  EXPECT_EQ(offsetof(BoardHead, combined), 192U);
  EXPECT_EQ(offsetof(BoardHead, put_for_all), 256U);
  EXPECT_EQ(offsetof(BoardHead, core), 320U);
  EXPECT_EQ(sizeof(BoardHead), 384U);
  EXPECT_EQ(offsetof(PairLine, first_message), 40U);
  EXPECT_EQ(sizeof(PairLine), 64U);
  EXPECT_EQ(offsetof(Header, mark), 8U);
  EXPECT_EQ(offsetof(Header, path), 16U);
  EXPECT_EQ(offsetof(Header, element_bytes), 20U);
  EXPECT_EQ(offsetof(Header, base), 24U);
  EXPECT_EQ(offsetof(Header, note), 40U);
  EXPECT_EQ(offsetof(Header, inside), 56U);
  EXPECT_EQ(offsetof(NotePlace, hash), 8U);
  EXPECT_EQ(sizeof(Header), 64U);
  EXPECT_EQ(offsetof(PartRecord, axes), 24U);
  EXPECT_EQ(offsetof(MessageHead, label), 8U);
  EXPECT_EQ(offsetof(MessageHead, bytes), 24U);
  const BoardPlan plan(3);
  EXPECT_EQ(plan.pair(1), 448);
  EXPECT_EQ(plan.page(0), 576);
  EXPECT_EQ(plan.bytes(), 17728);
  EXPECT_EQ(plan.section_bytes(), 6 << 20);
}

TEST(Handshake, AHelloOfAnotherLengthIsAnotherVersion) {
  const std::vector<std::byte> all(2 * sizeof(Hello) + 8);
  try {
    words_of<Hello>(all, 2);
    FAIL() << "nothing was thrown";
  } catch (const std::logic_error& error) {
    EXPECT_NE(std::string(error.what()).find("another version of shardway"), std::string::npos)
        << error.what();
  }
}

TEST(Handshake, AnotherVersionIsRefusedByItsRank) {
  EXPECT_EQ(refusal_of({Hello{.is_willing = 1}, Hello{.version = kHandshakeVersion + 1}}),
            "rank 1 has another version");
}

}  // namespace
}  // namespace shardway::shm
