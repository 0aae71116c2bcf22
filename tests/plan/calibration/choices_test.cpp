// What a calibration finds of the choices of shared memory.
#include <gtest/gtest.h>

#include "plan/calibration/calibration.h"

namespace shardway::testing {
namespace {

// Of calls that take a time of their own in groups of each way.
MeasuredChoices choices_of(int64_t ranks, double swap_factor, double hand_back_factor) {
  const std::vector<Trial> trials = trials_of_choices(ranks);
  TrialTimes us;
  for (const Trial& trial : trials) {
    us.emplace_back(
        12, 40 * (trial.choices->swap ? swap_factor : 1) * (trial.choices->hand_back ? hand_back_factor : 1));
  }
  return measured_choices(trials, us);
}

TEST(MeasuredChoices, AreWhatCallsTakeLessWithEach) {
  const MeasuredChoices found = choices_of(2, 0.8, 1.25);
  ASSERT_TRUE(found.swap && found.hand_back);
  EXPECT_NEAR(found.swap->saves, 0.2, 1e-9);
  EXPECT_EQ(found.swap->is_on(), true);
  EXPECT_NEAR(found.hand_back->saves, -0.25, 1e-9);
  EXPECT_EQ(found.hand_back->is_on(), false);
}

// Handing back saves half where nothing is swapped, and costs a tenth where it is, which is quickest.
TEST(MeasuredChoices, AreComparedBesideTheQuickestWay) {
  const std::vector<Trial> trials = trials_of_choices(2);
  TrialTimes us;
  for (const Trial& trial : trials) {
    const double mean =
        trial.choices->swap ? (trial.choices->hand_back ? 11 : 10) : (trial.choices->hand_back ? 20 : 40);
    us.emplace_back(12, mean);
  }
  const MeasuredChoices found = measured_choices(trials, us);
  EXPECT_NEAR(found.swap->saves, 0.75, 1e-9);
  EXPECT_NEAR(found.hand_back->saves, -0.1, 1e-9);
}

TEST(MeasuredChoices, WithinTheSpreadTellNothing) {
  const MeasuredChoices found = choices_of(2, 0.99, 1);
  EXPECT_EQ(found.swap->is_on(), true) << "a hundredth, and no spread";
  EXPECT_EQ(found.hand_back->is_on(), std::nullopt);
  EXPECT_EQ((MeasuredChoice{.saves = 0.05, .spread = 0.06}).is_on(), std::nullopt);
  EXPECT_EQ((MeasuredChoice{.saves = -0.05, .spread = 0.06}).is_on(), std::nullopt);
}

TEST(MeasuredChoices, OnlyTwoRanksSwap) {
  const MeasuredChoices found = choices_of(4, 1, 0.5);
  EXPECT_FALSE(found.swap);
  EXPECT_NEAR(found.hand_back->saves, 0.5, 1e-9);
}

TEST(MeasuredChoices, OfCallsThatWereNotMadeAreNone) {
  const std::vector<Trial> trials = trials_of_choices(2);
  EXPECT_EQ(measured_choices(trials, TrialTimes(trials.size())), MeasuredChoices{});
}

}  // namespace
}  // namespace shardway::testing
