#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "cuda/driver.h"
#include "cuda/move_table.h"
#include "cuda/ptx.h"
#include "ptx_machine.h"

namespace shardway {
namespace {

using cuda::BoxMove;
using cuda::MoveTable;
using shm::Combine;
using shm::Element;
using shm::Reduction;
using test::PtxMachine;

constexpr int64_t kGap = 0x5a;

// A box in memory of its own, with a gap behind each element of some dims.
struct TestBox {
  std::vector<std::byte> memory;
  std::vector<int64_t> strides;

  TestBox(const std::vector<int64_t>& extent, int64_t element_bytes, std::mt19937& dice) {
    std::vector<size_t> order(extent.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (dice() % 2 == 0) std::shuffle(order.begin(), order.end(), dice);
    strides.resize(extent.size());
    int64_t bytes = element_bytes;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = bytes;
      bytes *= extent[order[i]] + (dice() % 3 == 0 ? 1 : 0);
    }
    memory.resize(static_cast<size_t>(bytes) + 64, std::byte{kGap});
    skew_ = static_cast<int64_t>(dice() % 4) * element_bytes;
  }

  // Aligned to 16 and some elements.
  std::byte* data() {
    const auto at = reinterpret_cast<uintptr_t>(memory.data());
    return memory.data() + ((16 - at % 16) % 16) + skew_;
  }
  cuda::StridedBox box() {
    return {.address = reinterpret_cast<cuda::DeviceAddress>(data()), .strides = strides};
  }

 private:
  int64_t skew_ = 0;
};

// Calls body with the coordinates of every element.
template <class Body>
void for_elements(const std::vector<int64_t>& extent, Body&& body) {
  std::vector<int64_t> at(extent.size(), 0);
  const int64_t count = std::accumulate(extent.begin(), extent.end(), int64_t{1}, std::multiplies<>());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = extent.size(); d-- > 0;) {
      at[d] = rest % extent[d];
      rest /= extent[d];
    }
    body(at);
  }
}

std::byte* element(TestBox& box, const std::vector<int64_t>& at) {
  return box.data() + std::inner_product(at.begin(), at.end(), box.strides.begin(), int64_t{0});
}

void run(const std::vector<MoveTable>& tables, const std::optional<Combine>& how) {
  for (const MoveTable& table : tables) {
    const int bytes = table.used_bytes <= cuda::kSmallTableBytes ? cuda::kSmallTableBytes : cuda::kTableBytes;
    PtxMachine machine(how ? cuda::combine_text(*how, table.unit_bytes, bytes)
                           : cuda::copy_text(table.unit_bytes, bytes));
    machine.run({.blocks = 2, .rows = static_cast<uint32_t>(table.jobs), .threads = 3},
                std::span(table.bytes).first(static_cast<size_t>(bytes)));
  }
}

std::vector<int64_t> random_extent(std::mt19937& dice) {
  std::vector<int64_t> extent(dice() % 7);
  for (int64_t& n : extent) n = 1 + static_cast<int64_t>(dice() % (extent.size() > 4 ? 3 : 9));
  return extent;
}

TEST(CudaKernels, CopyBoxesOfAnyShapeAndLeaveWhatLiesBetween) {
  std::mt19937 dice(1);
  for (int turn = 0; turn < 200; ++turn) {
    const int64_t element_bytes = int64_t{1} << (dice() % 5);
    const std::vector<int64_t> extent = random_extent(dice);
    TestBox from(extent, element_bytes, dice);
    TestBox to(extent, element_bytes, dice);
    for (std::byte& byte : from.memory) byte = static_cast<std::byte>(dice());
    std::vector<std::byte> expected = to.memory;
    for_elements(extent, [&](const std::vector<int64_t>& at) {
      std::memcpy(expected.data() + (element(to, at) - to.memory.data()), element(from, at),
                  static_cast<size_t>(element_bytes));
    });
    const BoxMove move{
        .extent = extent, .element_bytes = element_bytes, .to = to.box(), .from = {from.box()}};
    run(cuda::tables_of(std::span(&move, 1), std::nullopt), std::nullopt);
    ASSERT_EQ(to.memory, expected) << "turn " << turn;
  }
}

// Values whose sums and products say something.
void fill(TestBox& box, Element type, std::mt19937& dice) {
  const auto bytes = static_cast<size_t>(shm::bytes_of(type));
  for (size_t at = 0; at + bytes <= box.memory.size(); at += bytes) {
    uint64_t bits = dice() + (uint64_t{dice()} << 32);
    if (type == Element::boolean) bits &= 1;
    if (type == Element::f32) {
      const float number = static_cast<float>(static_cast<int>(dice() % 2001) - 1000) / 8;
      std::memcpy(&bits, &number, sizeof(number));
    }
    if (type == Element::f64) {
      const double number = static_cast<double>(static_cast<int>(dice() % 2001) - 1000) / 3;
      std::memcpy(&bits, &number, sizeof(number));
    }
    // Of either sign, and now and then no number; but a GPU writes another f16 for NaN than a CPU.
    if (type == Element::f16) bits = (dice() % 0x7800) | (dice() % 2 << 15);
    if (type == Element::bf16)
      bits = dice() % 50 == 0 ? 0x7fc0 : (0x3000 + dice() % 0x2000) | (dice() % 2 << 15);
    std::memcpy(box.memory.data() + at, &bits, bytes);
  }
}

struct Case {
  Element element;
  Reduction op;
  int64_t divisor;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Element element :
       {Element::boolean, Element::u8, Element::u16, Element::u32, Element::u64, Element::i8, Element::i16,
        Element::i32, Element::i64, Element::f16, Element::bf16, Element::f32, Element::f64}) {
    for (const Reduction op : {Reduction::sum, Reduction::min, Reduction::max, Reduction::product})
      cases.push_back({element, op, 1});
  }
  for (const Element element : {Element::f16, Element::bf16, Element::f32, Element::f64})
    cases.push_back({element, Reduction::sum, 3});
  return cases;
}

TEST(CudaKernels, CombineAddendsWithTheBitsOfSharedMemory) {
  std::mt19937 dice(2);
  for (const Case& one : all_cases()) {
    const Combine how{.element = one.element, .op = one.op, .divisor = one.divisor};
    ASSERT_TRUE(cuda::has_combine_text(how));
    const int64_t bytes = shm::bytes_of(one.element);
    for (int turn = 0; turn < 6; ++turn) {
      // Every second box is one run of memory, which is combined 16 bytes at a time.
      const std::vector<int64_t> extent = turn % 2 == 0 ? std::vector<int64_t>{32} : random_extent(dice);
      std::vector<TestBox> from;
      for (size_t i = 0; i < 1 + dice() % 4; ++i) from.emplace_back(extent, bytes, dice);
      for (TestBox& box : from) fill(box, one.element, dice);
      TestBox to(extent, bytes, dice);
      std::vector<std::byte> expected = to.memory;
      for_elements(extent, [&](const std::vector<int64_t>& at) {
        std::vector<const std::byte*> addends;
        for (TestBox& box : from) addends.push_back(element(box, at));
        shm::reduce(expected.data() + (element(to, at) - to.memory.data()), addends, 1, how);
      });
      BoxMove move{.extent = extent, .element_bytes = bytes, .to = to.box()};
      for (TestBox& box : from) move.from.push_back(box.box());
      run(cuda::tables_of(std::span(&move, 1), how), how);
      ASSERT_EQ(to.memory, expected) << "element " << int(one.element) << " op " << int(one.op) << " divisor "
                                     << one.divisor << " turn " << turn;
    }
  }
}

TEST(CudaKernels, KnowNoComplexNumbersAndNoBits) {
  EXPECT_FALSE(cuda::has_combine_text({.element = Element::complex64}));
  EXPECT_FALSE(cuda::has_combine_text({.element = Element::i32, .op = Reduction::bxor}));
  EXPECT_THROW(cuda::combine_text({.element = Element::complex128}, 16, cuda::kTableBytes),
               std::invalid_argument);
}

TEST(CudaTables, RunsOfMemoryAreMovedInTheWidestUnitsThatFit) {
  const BoxMove whole{.extent = {8, 6},
                      .element_bytes = 4,
                      .to = {.address = 1 << 20, .strides = {24, 4}},
                      .from = {{.address = 1 << 21, .strides = {24, 4}}}};
  const std::vector<MoveTable> tables = cuda::tables_of(std::span(&whole, 1), std::nullopt);
  ASSERT_EQ(tables.size(), 1);
  EXPECT_EQ(tables[0].unit_bytes, 16);
  EXPECT_EQ(tables[0].most_units, 12);
  EXPECT_EQ(tables[0].jobs, 1);
}

TEST(CudaTables, ManyMovesFillSeveralTables) {
  const BoxMove move{.extent = {4},
                     .element_bytes = 4,
                     .to = {.address = 1 << 20, .strides = {4}},
                     .from = {{.address = 1 << 21, .strides = {4}}}};
  const std::vector<BoxMove> moves(70, move);
  const std::vector<MoveTable> tables = cuda::tables_of(moves, std::nullopt);
  int jobs = 0;
  for (const MoveTable& table : tables) jobs += table.jobs;
  EXPECT_EQ(jobs, 70);
  EXPECT_EQ(tables.size(), 3);
}

TEST(CudaTables, ABoxOfMoreUnitsThanAnIndexCountsIsCut) {
  const BoxMove move{.extent = {int64_t{5} << 30},
                     .element_bytes = 1,
                     .to = {.address = 1, .strides = {1}},
                     .from = {{.address = 2, .strides = {1}}}};
  uint64_t units = 0;
  for (const MoveTable& table : cuda::tables_of(std::span(&move, 1), std::nullopt)) {
    EXPECT_EQ(table.unit_bytes, 1);
    for (int i = 0; i < table.jobs; ++i) {
      uint32_t offset = 0;
      std::memcpy(&offset, table.bytes.data() + 4 * i, 4);
      cuda::MoveJob job;
      std::memcpy(&job, table.bytes.data() + offset, sizeof(job));
      EXPECT_LE(job.units, 1U << 30);
      EXPECT_EQ(job.to, 1 + units);
      units += job.units;
    }
  }
  EXPECT_EQ(units, uint64_t{5} << 30);
}

TEST(CudaTables, EmptyBoxesAndMovesOntoThemselvesAreLeftOut) {
  const cuda::StridedBox here{.address = 64, .strides = {4}};
  const std::vector<BoxMove> moves = {
      {.extent = {4}, .element_bytes = 4, .to = here, .from = {here}},
      {.extent = {0}, .element_bytes = 4, .to = here, .from = {{.address = 0, .strides = {4}}}}};
  EXPECT_TRUE(cuda::tables_of(moves, std::nullopt).empty());
}

TEST(CudaTables, MoreAddendsThanATableHoldsAreRefused) {
  const cuda::StridedBox here{.address = 64, .strides = {4}};
  const BoxMove move{.extent = {4},
                     .element_bytes = 4,
                     .to = here,
                     .from = std::vector<cuda::StridedBox>(cuda::kMostSources + 1, here)};
  EXPECT_THROW(cuda::tables_of(std::span(&move, 1), Combine{}), std::invalid_argument);
}

TEST(CudaDriver, WithoutOneEveryCallSaysSoInOneSentence) {
  const std::string& why = cuda::Driver::why_none();
  if (why.empty()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_NE(why.find("CUDA driver"), std::string::npos) << why;
  try {
    cuda::Device device(0);
    FAIL() << "a device was opened";
  } catch (const cuda::DriverError& error) {
    EXPECT_EQ(error.what(), why);
  }
}

TEST(CudaDriver, UuidsReadAsToolsPrintThem) {
  cuda::Uuid uuid = {};
  for (size_t i = 0; i < uuid.bytes.size(); ++i) uuid.bytes[i] = static_cast<char>(0xf0 + i);
  EXPECT_EQ(cuda::text_of(uuid), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

}  // namespace
}  // namespace shardway
