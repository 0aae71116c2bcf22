// Numbers come back as they were written; a row that is not what its reader expects is refused.
#include "terms/numbers.h"

#include <gtest/gtest.h>

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

TEST(Numbers, ComeBackAsTheyWereWritten) {
  Numbers row = {-7};
  wire::append_list(row, Numbers{4, 5});
  wire::append_list(row, Numbers{});
  row.insert(row.end(), {8, 9});
  EXPECT_EQ(row, (Numbers{-7, 2, 4, 5, 0, 8, 9}));
  wire::NumberReader reader(row);
  EXPECT_EQ(reader.next(), -7);
  EXPECT_EQ(reader.list(), (Numbers{4, 5}));
  EXPECT_EQ(reader.list(), Numbers{});
  const auto last = reader.take(2);
  EXPECT_EQ(Numbers(last.begin(), last.end()), (Numbers{8, 9}));
  EXPECT_NO_THROW(reader.check_end());
}

TEST(Numbers, AreRefusedIfTheyAreTooFewOrTooManyOrOutOfRange) {
  const Numbers row = {3, 1, 2};
  EXPECT_THROW(wire::NumberReader(row).list(), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(row).take(4), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(row).take(-1), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(row).next(0, 2), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(row).next(4), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(Numbers{}).next(), std::invalid_argument);
  EXPECT_THROW(wire::NumberReader(row).check_end(), std::invalid_argument);
  const Numbers negative = {-1, 5};
  EXPECT_THROW(wire::NumberReader(negative).list(), std::invalid_argument);
}

}  // namespace
}  // namespace shardway::testing
