#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <numeric>

#include "any_addend.h"
#include "every_isa.h"
#include "shm/kernels/copy.h"
#include "shm/kernels/reduce.h"

namespace shardway::shm::testing {
namespace {

using Bytes = std::vector<std::byte>;
using Longs = std::vector<int64_t>;

using Longs3 = std::array<int64_t, 3>;

// An operand of three dims in memory of its own, row-major or column-major, with gaps; strides in bytes.
struct Operand {
  Longs strides = {};
  Bytes memory = {};

  int64_t at(const Longs3& index) const {
    return std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
  }
};

Operand any_operand(const Longs3& extent, Element element, uint64_t seed) {
  Operand operand{.strides = Longs(extent.size())};
  const bool forwards = *rc::gen::arbitrary<bool>();
  int64_t elements = 1;
  for (size_t i = 0; i < extent.size(); ++i) {
    const size_t d = forwards ? i : extent.size() - 1 - i;
    operand.strides[d] = elements * bytes_of(element);
    elements *= extent[d] + *rc::gen::element<int64_t>(0, 0, 2);
  }
  operand.memory = any_addend(element, elements, seed);
  return operand;
}

template <class Visit>
void each_index(const Longs3& extent, const Visit& visit) {
  for (int64_t i = 0; i < extent[0]; ++i) {
    for (int64_t j = 0; j < extent[1]; ++j) {
      for (int64_t k = 0; k < extent[2]; ++k) visit(Longs3{i, j, k});
    }
  }
}

// The output after each element was reduced by itself.
Bytes reduced_one_by_one(const Operand& to, const std::vector<Operand>& addends, const Longs3& extent,
                         const Combine& how) {
  Bytes memory = to.memory;
  each_index(extent, [&](const Longs3& index) {
    std::vector<const std::byte*> from;
    for (const Operand& addend : addends) from.push_back(addend.memory.data() + addend.at(index));
    reduce(memory.data() + to.at(index), from, 1, how);
  });
  return memory;
}

RC_GTEST_PROP(ReduceBox, EqualsTheReductionOfEachElementAndWritesNothingElse, ()) {
  const Longs3 extent = {*rc::gen::inRange<int64_t>(0, 5), *rc::gen::inRange<int64_t>(0, 6),
                         *rc::gen::inRange<int64_t>(1, 90)};
  const Combine how{
      .element = *rc::gen::element(Element::f16, Element::f32, Element::i8, Element::complex128),
      .divisor = 2};
  std::vector<Operand> addends;
  std::vector<StridedAddend> from;
  const auto count = *rc::gen::element<uint64_t>(1, 2, 3, 4, 11, 40);
  for (uint64_t a = 0; a < count; ++a) addends.push_back(any_operand(extent, how.element, 3 + a));
  for (const Operand& addend : addends) from.push_back({addend.memory.data(), addend.strides});
  const Operand to = any_operand(extent, how.element, 2);
  on_every_isa([&] {
    Bytes memory = to.memory;
    reduce_box(memory.data(), to.strides, from, extent, how);
    RC_ASSERT(memory == reduced_one_by_one(to, addends, extent, how));
  });
}

TEST(ReduceBox, OfLongRowsPastTheCache) {
  constexpr int64_t kRow = 1500;
  const Combine how{.element = Element::f32};
  const Bytes a = any_addend(how.element, 3 * kRow, 1);
  const Bytes b = any_addend(how.element, 3 * kRow, 2);
  const Longs apart = {8 * kRow, 4};
  const Longs close = {4 * kRow, 4};
  const std::vector<StridedAddend> addends = {{a.data(), close}, {b.data(), close}};
  Bytes expected(4 * 6 * kRow, std::byte{0xA5});
  Bytes found = expected;
  reduce_box(expected.data(), apart, addends, Longs{3, kRow}, how);
  reduce_box(found.data(), apart, addends, Longs{3, kRow}, how, kStreamFromBytes);
  EXPECT_EQ(found, expected);
}

TEST(ReduceBox, OfRowsLongerThanItPacksAtOnce) {
  constexpr int64_t kCount = 5000;
  const Combine how{.element = Element::f32};
  const Bytes a = any_addend(how.element, 2 * kCount, 1);
  const Bytes b = any_addend(how.element, kCount, 2);
  const Longs apart = {8};
  const Longs close = {4};
  Bytes every_second;
  for (int64_t i = 0; i < kCount; ++i)
    every_second.insert(every_second.end(), a.begin() + 8 * i, a.begin() + 8 * i + 4);
  Bytes expected(4 * kCount);
  reduce(expected.data(), std::vector<const std::byte*>{every_second.data(), b.data()}, kCount, how);
  Bytes found(4 * kCount);
  reduce_box(found.data(), close, std::vector<StridedAddend>{{a.data(), apart}, {b.data(), close}},
             Longs{kCount}, how);
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace shardway::shm::testing
