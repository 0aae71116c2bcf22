#include "shardway/dims.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <utility>

namespace shardway::testing {
namespace {

using Numbers = std::vector<int64_t>;

// On both sides of what lies in the object itself.
Numbers any_numbers() {
  const size_t size = *rc::gen::inRange<size_t>(0, 3 * Dims::kInline);
  return *rc::gen::container<Numbers>(size, rc::gen::inRange<int64_t>(-3, 4));
}

Numbers numbers(const Dims& dims) { return {dims.begin(), dims.end()}; }

RC_GTEST_PROP(Dims, HoldTheNumbersThatTheyAreMadeOf, ()) {
  const Numbers expected = any_numbers();
  const Dims dims = expected;
  RC_ASSERT(dims.size() == expected.size());
  RC_ASSERT(dims.empty() == expected.empty());
  RC_ASSERT(Numbers(dims) == expected);
  for (size_t d = 0; d < expected.size(); ++d) RC_ASSERT(dims[d] == expected[d]);
  Dims pushed;
  for (const int64_t number : expected) {
    pushed.push_back(number);
    RC_ASSERT(pushed.back() == number);
  }
  RC_ASSERT(pushed == dims);
}

RC_GTEST_PROP(Dims, CompareAsVectorsDo, ()) {
  const Numbers a = any_numbers();
  const Numbers b = any_numbers();
  RC_ASSERT((Dims(a) == Dims(b)) == (a == b));
  RC_ASSERT((Dims(a) < Dims(b)) == (a < b));
}

RC_GTEST_PROP(Dims, CopiesAreIndependentAndMovesTakeAll, ()) {
  const Numbers first = any_numbers();
  const Numbers second = any_numbers();
  Dims dims = first;
  const Dims copy = dims;
  for (int64_t& number : dims) ++number;
  RC_ASSERT(numbers(copy) == first);
  dims = copy;
  const Dims& itself = dims;
  dims = itself;
  RC_ASSERT(numbers(dims) == first);
  Dims moved = std::move(dims);
  RC_ASSERT(numbers(moved) == first);
  dims = Dims(second);
  std::swap(dims, moved);
  RC_ASSERT(numbers(dims) == first);
  RC_ASSERT(numbers(moved) == second);
}

TEST(Dims, OfASizeAloneAreZero) {
  for (const size_t size : {size_t{0}, Dims::kInline, Dims::kInline + 1, size_t{64}})
    EXPECT_EQ(numbers(Dims(size)), Numbers(size, 0));
}

}  // namespace
}  // namespace shardway::testing
