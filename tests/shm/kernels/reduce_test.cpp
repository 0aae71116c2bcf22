#include "shm/kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "any_addend.h"
#include "every_isa.h"
#include "scalar_reduction.h"
#include "shm/kernels/copy.h"

namespace shardway::shm::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int kElements = static_cast<int>(Element::complex128) + 1;
constexpr int kReductions = static_cast<int>(Reduction::bxor) + 1;

template <class Body>
void each_reduction(const Body& body) {
  for (int e = 0; e < kElements; ++e) {
    for (int r = 0; r < kReductions; ++r) {
      const Combine how{.element = static_cast<Element>(e), .op = static_cast<Reduction>(r)};
      SCOPED_TRACE("element " + std::to_string(e) + ", op " + std::to_string(r));
      if (is_defined(how.element, how.op)) body(how);
    }
  }
}

struct Addends {
  std::vector<Bytes> bytes = {};
  std::vector<const std::byte*> at = {};

  // Addend a starts a × `shift` bytes off.
  Addends(Element element, int64_t addends, int64_t count, int64_t shift = 1) {
    for (int64_t a = 0; a < addends; ++a) {
      bytes.push_back(any_addend(element, count, 100 + a));
      bytes.back().insert(bytes.back().begin(), static_cast<size_t>(a * shift), std::byte{});
    }
    for (int64_t a = 0; a < addends; ++a) at.push_back(bytes[a].data() + a * shift);
  }
};

// Which of two NaNs an addition keeps is the machine's choice, so any NaN equals any other here; what min and
// max keep is not.
template <class T>
bool same(T a, T b, bool any_nan) {
  if constexpr (std::same_as<T, F16>) {
    if (any_nan && std::isnan(value_of(a)) && std::isnan(value_of(b))) return true;
  } else if constexpr (std::floating_point<T>) {
    if (any_nan && std::isnan(a) && std::isnan(b)) return true;
  } else if constexpr (kIsComplex<T>) {
    return same(a.real(), b.real(), any_nan) && same(a.imag(), b.imag(), any_nan);
  }
  using Representation = std::array<std::byte, sizeof(T)>;
  return std::bit_cast<Representation>(a) == std::bit_cast<Representation>(b);
}

Bytes expect_reduces(const Combine& how, const std::vector<const std::byte*>& addends, int64_t count) {
  const int64_t element = bytes_of(how.element);
  constexpr int64_t kGuard = 64;
  Bytes memory(static_cast<size_t>(count * element + 1 + kGuard), std::byte{0xA5});
  reduce(memory.data() + 1, addends, count, how);
  with_type(how.element, [&](auto like) {
    using T = decltype(like);
    const bool any_nan = how.op != Reduction::min && how.op != Reduction::max;
    for (int64_t i = 0; i < count; ++i) {
      T found;
      std::memcpy(&found, memory.data() + 1 + i * element, sizeof(T));
      ASSERT_TRUE(same(found, reduced_element<T>(addends, i, how), any_nan))
          << "element " << i << " of " << count << ", " << addends.size() << " addends";
    }
  });
  EXPECT_EQ(memory[0], std::byte{0xA5});
  EXPECT_TRUE(
      std::all_of(memory.end() - kGuard, memory.end(), [](std::byte b) { return b == std::byte{0xA5}; }));
  return memory;
}

TEST(Reduce, EqualsTheScalarOneForEveryKindAndNumberOfAddends) {
  each_reduction([](const Combine& how) {
    for (const int64_t addends : {1, 2, 3, 4, 5, 8, 9, 17}) {
      const Addends from(how.element, addends, 333);
      on_every_isa([&] { expect_reduces(how, from.at, 333); });
    }
  });
}

TEST(Reduce, OfEverySmallCount) {
  each_reduction([](const Combine& how) {
    const Addends from(how.element, 3, 200);
    on_every_isa([&] {
      for (int64_t count = 0; count <= 200; ++count) expect_reduces(how, from.at, count);
    });
  });
}

TEST(Reduce, HasTheSameBitsOnEveryInstructionSet) {
  each_reduction([](const Combine& how) {
    for (const int64_t addends : {2, 5}) {
      const Addends from(how.element, addends, 1000);
      std::vector<Bytes> found;
      on_every_isa([&] { found.push_back(expect_reduces(how, from.at, 1000)); });
      for (const Bytes& other : found) EXPECT_EQ(other, found[0]);
    }
  });
}

TEST(Reduce, HasTheSameBitsHoweverTheRangeIsCut) {
  each_reduction([](const Combine& how) {
    const int64_t element = bytes_of(how.element);
    const Addends from(how.element, 4, 500);
    on_every_isa([&] {
      const Bytes whole = expect_reduces(how, from.at, 500);
      Bytes pieces(whole.size(), std::byte{0xA5});
      for (int64_t start = 0, length = 1; start < 500; start += length, length = length * 3 % 101) {
        auto at = from.at;
        for (auto& addend : at) addend += start * element;
        reduce(pieces.data() + 1 + start * element, at, std::min(length, 500 - start), how);
      }
      EXPECT_EQ(pieces, whole);
    });
  });
}

TEST(Reduce, HasTheSameBitsPastTheCache) {
  constexpr int64_t kCount = 3001;  // several blocks, and a part of one
  each_reduction([](const Combine& how) {
    const Addends from(how.element, 3, kCount);
    on_every_isa([&] {
      const Bytes whole = expect_reduces(how, from.at, kCount);
      Bytes streamed(whole.size(), std::byte{0xA5});
      reduce(streamed.data() + 1, from.at, kCount, how, kStreamFromBytes);
      EXPECT_EQ(streamed, whole);
    });
  });
}

TEST(Reduce, DividesFloatsBeforeTheyRound) {
  for (const Element element : {Element::f16, Element::bf16, Element::f32, Element::f64, Element::complex64,
                                Element::complex128, Element::i32, Element::boolean}) {
    const Addends from(element, 3, 300);
    for (const int64_t divisor : {2, 3, 1 << 30}) {
      on_every_isa([&] { expect_reduces({.element = element, .divisor = divisor}, from.at, 300); });
    }
  }
}

TEST(Reduce, MultipliesEveryAddendByTheFactor) {
  for (int e = 0; e < kElements; ++e) {
    SCOPED_TRACE("element " + std::to_string(e));
    const auto element = static_cast<Element>(e);
    const Addends from(element, 3, 300);
    const bool is_float = element >= Element::f16;
    for (const double factor : {is_float ? 0.3 : 3.0, -2.0, 0.0}) {
      on_every_isa([&] { expect_reduces({.element = element, .factor = factor}, from.at, 300); });
    }
  }
}

TEST(Reduce, MayWriteOverOneOfItsAddends) {
  each_reduction([](const Combine& how) {
    constexpr int64_t kCount = 301;
    on_every_isa([&] {
      for (size_t which = 0; which < 3; ++which) {
        Addends from(how.element, 3, kCount, 0);
        const Bytes expected = expect_reduces(how, from.at, kCount);
        reduce(from.bytes[which].data(), from.at, kCount, how);
        EXPECT_TRUE(std::equal(from.bytes[which].begin(), from.bytes[which].end(), expected.begin() + 1));
      }
    });
  });
}

TEST(Reduce, ReadsEveryHalfAsItsOwnValueAndRoundsToTheNearest) {
  for (const Element element : {Element::f16, Element::bf16}) {
    std::vector<uint16_t> all(65536);
    std::iota(all.begin(), all.end(), uint16_t{0});
    const auto* at = reinterpret_cast<const std::byte*>(all.data());
    on_every_isa([&] {
      expect_reduces({.element = element, .op = Reduction::max}, {at}, 65536);
      for (const int64_t divisor : {3, 7, 1 << 20}) {
        expect_reduces({.element = element, .divisor = divisor}, {at, at}, 65536);
      }
    });
  }
}

TEST(Reduce, RefusesWhatHasNoMeaning) {
  std::array<std::byte, 16> bytes{};
  const std::vector<const std::byte*> from = {bytes.data()};
  const auto refuses = [&](const Combine& how) {
    EXPECT_THROW(reduce(bytes.data(), from, 1, how), std::invalid_argument);
  };
  refuses({.element = Element::complex64, .op = Reduction::min});
  refuses({.element = Element::f32, .op = Reduction::band});
  refuses({.element = Element::f32, .op = Reduction::max, .factor = 2});
  refuses({.element = Element::i32, .factor = std::numeric_limits<double>::quiet_NaN()});
  refuses({.element = Element::f32, .divisor = 0});
}

}  // namespace
}  // namespace shardway::shm::testing
