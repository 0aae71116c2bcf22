// What the ranks say about the tensors of a list.
#include "ops/mesh/listed_facts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace shardway::testing {
namespace {

// A byte per tensor: zero without a part; else whether it requires grad, and above that one more than torch's
// number of the device.
at::Tensor flags(const std::vector<uint8_t>& bytes) {
  return at::tensor(at::ArrayRef<uint8_t>(bytes), at::kByte);
}
constexpr uint8_t kOnCpu = 2;
constexpr uint8_t kOnCuda = 4;

TEST(ListedFacts, AreThoseOfAnyRankThatHasAPart) {
  const std::vector<ListedFacts> facts = facts_in({flags({0, kOnCpu, 0}), flags({kOnCuda | 1, kOnCpu, 0})});
  EXPECT_TRUE(facts[0].wants_gradient);
  EXPECT_EQ(facts[0].device, c10::DeviceType::CUDA);
  EXPECT_FALSE(facts[1].wants_gradient);
  EXPECT_EQ(facts[1].device, c10::DeviceType::CPU);
  EXPECT_EQ(facts[2].device, std::nullopt);
}

TEST(ListedFacts, OfTwoDevicesAreRefusedWithTheRanksThatHaveThem) {
  const KnownInputs said = {flags({kOnCpu, 0}), flags({kOnCpu, kOnCpu}), flags({0, kOnCuda})};
  try {
    facts_in(said);
    FAIL() << "nothing was thrown";
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(),
                 "redistribute: ranks disagree on device of tensor 1: cpu on rank 1, cuda on rank 2");
  }
}

}  // namespace
}  // namespace shardway::testing
