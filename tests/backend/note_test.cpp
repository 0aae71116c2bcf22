// Notes of honest ranks come back as they were written; those that cannot be are refused.
#include "backend/note.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

namespace shardway::backend {
namespace {

constexpr int64_t kRanks = 3;

// Where the numbers lie that a peer may forge.
enum Place : size_t {
  at_call = 8,
  at_has_input = 11,
  at_sends = 24,
  at_takes = 32,
  at_input = 40,
  at_problem = 48
};
constexpr size_t kHeadBytes = 56;

std::vector<std::byte> bytes_of(const Note& note) {
  std::vector<std::byte> bytes(32 << 10);
  bytes.resize(static_cast<size_t>(write_note(note, bytes)));
  return bytes;
}

std::vector<std::byte> counting_up(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

Note with_input(const std::vector<std::byte>& input) {
  return {.call = CallKind::all_to_all,
          .dtype = 6,
          .sends = {.by_rank = {1, 2, 3}},
          .takes = {.by_rank = {4, 5, 6}},
          .has_input = true,
          .input = input};
}

template <class T>
std::vector<std::byte> forged(std::vector<std::byte> bytes, size_t place, T value) {
  std::memcpy(bytes.data() + place, &value, sizeof(value));
  return bytes;
}

std::string refusal_of(const std::vector<std::byte>& bytes) {
  Note note;
  try {
    if (!read_note(bytes, kRanks, note)) return "no note";
  } catch (const BadNote& error) {
    return error.what();
  }
  return "none";
}

TEST(Note, ComesBackAsItWasWritten) {
  const auto input = counting_up(5000);
  const auto bytes = bytes_of(with_input(input));
  Note note;
  ASSERT_TRUE(read_note(bytes, kRanks, note));
  EXPECT_EQ(note.call, CallKind::all_to_all);
  EXPECT_EQ(note.dtype, 6);
  EXPECT_EQ(note.sends.by_rank, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(note.takes.of(2), 6);
  EXPECT_TRUE(note.problem.empty());
  ASSERT_TRUE(note.has_input);
  EXPECT_EQ(std::vector(note.input.begin(), note.input.end()), input);
}

TEST(Note, KeepsNothingOfTheNoteThatWasReadBefore) {
  Note note;
  read_note(bytes_of(with_input(counting_up(100))), kRanks, note);
  const auto bytes = bytes_of({.call = CallKind::reduce, .sends = {.each = 7}, .problem = "it is broken"});
  ASSERT_TRUE(read_note(bytes, kRanks, note));
  EXPECT_EQ(note.sends.of(1), 7);
  EXPECT_EQ(note.takes.of(1), 0);
  EXPECT_EQ(note.problem, "it is broken");
  EXPECT_TRUE(!note.has_input && note.input.empty());
}

TEST(Note, LeavesAnInputOutThatIsTooLong) {
  const auto input = counting_up(kMostInputBytes + 1);
  Note note;
  ASSERT_TRUE(read_note(bytes_of(with_input(input)), kRanks, note));
  EXPECT_FALSE(note.has_input);
}

TEST(Note, OfAnotherRoomIsNone) {
  EXPECT_EQ(refusal_of({}), "no note");
  EXPECT_EQ(refusal_of(counting_up(kHeadBytes - 1)), "no note");
  EXPECT_EQ(refusal_of(counting_up(200)), "no note");
}

TEST(Note, WithALengthThatIsNotThereIsRefused) {
  const auto honest = bytes_of(with_input(counting_up(100)));
  ASSERT_EQ(refusal_of(honest), "none");
  for (const int64_t length : {INT64_MAX, INT64_MIN, int64_t{-1}, int64_t{1} << 40, int64_t{1025}}) {
    const std::string said = std::to_string(length);
    EXPECT_EQ(refusal_of(forged(honest, at_problem, length)), "it has " + said + " bytes of text");
    EXPECT_EQ(refusal_of(forged(honest, at_input, length)), "it has " + said + " bytes of input");
  }
  EXPECT_EQ(refusal_of(forged(honest, at_input, int64_t{101})), "it has 101 bytes of input");
}

TEST(Note, WithCountsThatCannotBeIsRefused) {
  const auto honest = bytes_of(with_input({}));
  for (const int64_t count : {INT64_MAX, INT64_MIN, kMostElements + 1, int64_t{-2}}) {
    const std::string said = "it counts " + std::to_string(count) + " elements";
    EXPECT_EQ(refusal_of(forged(honest, at_sends, count)), said);
    EXPECT_EQ(refusal_of(forged(honest, at_takes, count)), said);
    EXPECT_EQ(refusal_of(forged(honest, kHeadBytes + 8, count)), said);  // in a list
  }
  auto cut = honest;
  cut.resize(kHeadBytes + 6 * sizeof(int64_t) - 1);
  EXPECT_EQ(refusal_of(cut), "it has 24 bytes of counts");
}

TEST(Note, OfACallThatIsNoneIsRefused) {
  const auto honest = bytes_of(with_input({}));
  EXPECT_EQ(refusal_of(forged(honest, at_call, uint8_t{10})), "it names no call");
  EXPECT_EQ(refusal_of(forged(honest, at_call, uint8_t{255})), "it names no call");
  EXPECT_EQ(refusal_of(forged(honest, at_has_input, uint8_t{2})), "it names no call");
}

}  // namespace
}  // namespace shardway::backend
