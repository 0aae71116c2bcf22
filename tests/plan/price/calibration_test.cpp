#include "plan/price/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/text/calibration_file.h"
#include "plan/text/calibration_json.h"
#include "refusal.h"

namespace shardway::testing {
namespace {

constexpr int64_t kKiB = 1024;

const Topology kKnown{.base_us = 3,
                      .within_host = {.latency_us = 0.5, .gib_per_s = 8},
                      .copy_gib_per_s = 20,
                      .reduce_gib_per_s = 5};

// The layouts before and after a call of `bytes` bytes, for the planner.
std::vector<Layout> layouts_of(StepKind kind, int64_t bytes, int64_t ranks) {
  const Mesh mesh({ranks});
  const auto lies = [&](const Dims& shape, const Placement& placement) {
    return Layout(shape, DType::u8, mesh, {placement});
  };
  switch (kind) {
    case StepKind::all_gather:
      return {lies({bytes}, shard(0)), lies({bytes}, replicate())};
    case StepKind::reduce_scatter:
      return {lies({bytes}, partial()), lies({bytes}, shard(0))};
    case StepKind::all_to_all:
      return {lies({ranks, bytes}, shard(0)), lies({ranks, bytes}, shard(1))};
    case StepKind::all_reduce:
      return {lies({bytes}, partial()), lies({bytes}, replicate())};
    default: {
      std::vector<int64_t> turned;
      for (int64_t r = 0; r < ranks; ++r) turned.push_back((r + 1) % ranks);
      const Layout before = lies({ranks * bytes}, shard(0));
      return {before, before.with(Mesh({ranks}, turned, {}), {shard(0)})};
    }
  }
}

// Calls that take exactly what a topology says, but for a factor.
std::vector<MeasuredCall> calls_by(const Topology& topology, int64_t ranks, double factor = 1) {
  std::vector<MeasuredCall> calls;
  bool is_held_out = false;
  for (int64_t bytes = kKiB; bytes <= 1024 * kKiB; bytes *= 2) {
    for (const StepKind kind : kMeasuredKinds)
      calls.push_back({.kind = kind,
                       .bytes = bytes,
                       .us = factor * modelled_us(kind, bytes, ranks, topology),
                       .is_held_out = is_held_out});
    is_held_out = !is_held_out;
  }
  return calls;
}

void expect_same_figures(const Topology& found, const Topology& known) {
  EXPECT_NEAR(found.base_us, known.base_us, 1e-6);
  EXPECT_NEAR(found.within_host.latency_us, known.within_host.latency_us, 1e-6);
  EXPECT_NEAR(found.within_host.gib_per_s, known.within_host.gib_per_s, 1e-6);
  EXPECT_NEAR(found.copy_gib_per_s, known.copy_gib_per_s, 1e-5);
  EXPECT_NEAR(found.reduce_gib_per_s, known.reduce_gib_per_s, 1e-6);
}

TEST(Calibration, ItsModelIsWhatThePlannerCharges) {
  constexpr int64_t kBytes = 12 * 1024 * kKiB;
  for (const int64_t ranks : {2, 3, 4}) {
    for (const StepKind kind : kMeasuredKinds) {
      const std::vector<Step> steps = steps_along(layouts_of(kind, kBytes, ranks), {.topology = kKnown});
      ASSERT_EQ(steps.size(), 1U);
      // Two ranks have a cheaper way than to share a reduction out.
      if (kind == StepKind::all_reduce && ranks == 2) continue;
      if (kind != StepKind::permute) ASSERT_EQ(steps.front().kind, kind) << name_of(steps.front().kind);
      EXPECT_NEAR(modelled_us(kind, kBytes, ranks, kKnown), steps.front().cost_us, 1e-6)
          << name_of(kind) << " of " << ranks;
    }
  }
}

TEST(Calibration, FindsTheFiguresThatMadeTheMeasurements) {
  for (const int64_t ranks : {3, 4, 8}) {
    const Topology found = fitted_topology(calls_by(kKnown, ranks), ranks);
    expect_same_figures(found, kKnown);
    EXPECT_EQ(found.source, "measured");
    EXPECT_NEAR(held_out_error(calls_by(kKnown, ranks), ranks, found), 0, 1e-9);
  }
}

TEST(Calibration, TwoRanksFitEveryCallThoughTheyDoNotTellAllFiguresApart) {
  const std::vector<MeasuredCall> calls = calls_by(kKnown, 2);
  const Topology found = fitted_topology(calls, 2);
  for (const MeasuredCall& call : calls)
    EXPECT_NEAR(modelled_us(call.kind, call.bytes, 2, found), call.us, 1e-6 * call.us) << name_of(call.kind);
}

TEST(Calibration, HeldOutCallsDoNotCountInTheFit) {
  std::vector<MeasuredCall> calls = calls_by(kKnown, 4);
  for (MeasuredCall& call : calls) {
    if (call.is_held_out) call.us *= 1.25;
  }
  const Topology found = fitted_topology(calls, 4);
  expect_same_figures(found, kKnown);
  EXPECT_NEAR(held_out_error(calls, 4, found), 0.2, 1e-6);  // 1 against 1.25
}

TEST(Calibration, TheHeldOutErrorIsTheMedian) {
  std::vector<MeasuredCall> calls;
  for (const double factor : {1.0, 2.0, 4.0, 5.0, 10.0}) {
    calls.push_back({.kind = StepKind::permute,
                     .bytes = kKiB,
                     .us = factor * modelled_us(StepKind::permute, kKiB, 4, kKnown),
                     .is_held_out = true});
  }
  calls.push_back({.kind = StepKind::permute, .bytes = kKiB, .us = 1e9});
  EXPECT_NEAR(held_out_error(calls, 4, kKnown), 0.75, 1e-12);
}

TEST(Calibration, FiguresAreNeverNegative) {
  std::vector<MeasuredCall> calls = calls_by(kKnown, 4);
  for (MeasuredCall& call : calls) {  // reductions quicker than gathers, and large calls out of proportion
    if (call.kind == StepKind::reduce_scatter) call.us /= 3;
    if (call.bytes > 100 * kKiB) call.us *= 2;
  }
  const Topology found = fitted_topology(calls, 4);
  EXPECT_NO_THROW(validate(found));
  EXPECT_GE(found.base_us, 0);
  EXPECT_GT(found.within_host.gib_per_s, 0);
}

TEST(Calibration, TooFewCallsAreRefused) {
  std::vector<MeasuredCall> calls = calls_by(kKnown, 4);
  calls.resize(4);
  EXPECT_TRUE(refuses_with([&] { fitted_topology(calls, 4); }, "4 calls are too few"));
}

TEST(Calibration, OddRepetitionsAreComparedWithEvenOnes) {
  // Even: 10, 12, 14. Odd: 20, 22, 24.
  const MeasuredCall call = summary_of(StepKind::all_reduce, kKiB, {10, 20, 12, 22, 14, 24});
  EXPECT_EQ(call.us, 17);
  EXPECT_NEAR(call.retest_error, 10.0 / 17, 1e-12);
  EXPECT_NEAR(call.spread, (20.0 - 12) / 17, 1e-12);
  EXPECT_TRUE(refuses_with([] { summary_of(StepKind::all_reduce, kKiB, {1}); }, "two repetitions"));
}

Calibration any_calibration() {
  return {.machine = "node-a",
          .processor = "AMD EPYC",
          .cores = 2,
          .ranks = 4,
          .backend = "shared memory",
          .date = "2026-01-31T12:00:00Z",
          .repetitions = 12,
          .retest_error = 0.04,
          .held_out_error = 0.11,
          .calls = calls_by(kKnown, 4)};
}

std::string file_of(const Calibration& calibration) { return to_json(kKnown, calibration); }

std::string with(std::string text, const std::string& piece, const std::string& by) {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), by);
}

TEST(CalibrationFile, WrittenAndReadIsTheSame) {
  const std::string text = file_of(any_calibration());
  EXPECT_EQ(topology_from_json(text), kKnown);
  const Json document = parse_json(text, "my.json");
  EXPECT_EQ(calibration_from(JsonField(document, "my.json").at("measured")), any_calibration());
}

TEST(CalibrationFile, SaysThatRanksShareCores) {
  EXPECT_NE(file_of(any_calibration()).find("\"ranks_share_cores\": true"), std::string::npos);
  Calibration roomy = any_calibration();
  roomy.cores = 4;
  EXPECT_NE(file_of(roomy).find("\"ranks_share_cores\": false"), std::string::npos);
}

TEST(CalibrationFile, RefusesWhatItDoesNotKnow) {
  const std::string text = file_of(any_calibration());
  const auto refused = [](const std::string& changed, const auto&... words) {
    return refuses_with([&] { topology_from_json(changed, "my.json"); }, "my.json", words...);
  };
  EXPECT_TRUE(refused(text.substr(0, text.size() / 2)));
  EXPECT_TRUE(refused(with(text, "\"version\": 1", "\"version\": 2"), "version", "2"));
  EXPECT_TRUE(refused(with(text, "\"machine\"", "\"maschine\""), "measured", "maschine"));
  EXPECT_TRUE(refused(with(text, "\"op\": \"all_gather\"", "\"op\": \"slice\""), "calls[0].op", "slice"));
  EXPECT_TRUE(refused(with(text, "\"ranks\": 4", "\"ranks\": 1"), "measured.ranks", "at least 2"));
  EXPECT_TRUE(refused(with(text, "\"cores\": 2", "\"cores\": 8"), "ranks_share_cores", "contradicts"));
  EXPECT_TRUE(refused(with(text, "\"held_out_error\": 0.11", "\"held_out_error\": -1"), "held_out_error"));
  EXPECT_TRUE(refused("{\"figures\": [1, 2]}", "version"));
  EXPECT_TRUE(refused("PK\x03\x04"));
}

TEST(CalibrationDoubts, NameAnotherProcessorOtherCoresAndOtherRanks) {
  const Calibration calibration = any_calibration();
  EXPECT_EQ(doubt_about(calibration, {.processor = "AMD EPYC", .cores = 2, .ranks = 4}), "");
  EXPECT_EQ(doubt_about(calibration, {.processor = "AMD EPYC", .cores = 2}), "");
  EXPECT_EQ(doubt_about(calibration, {.processor = "Intel Xeon", .cores = 2, .ranks = 4}),
            "its figures were measured on another processor (AMD EPYC; here it is Intel Xeon): measure again "
            "with shardway calibrate");
  EXPECT_EQ(
      doubt_about(calibration, {.processor = "AMD EPYC", .cores = 16, .ranks = 8}),
      "its figures were measured with 2 cores (here 16) and with 4 ranks (this is for 8): measure again "
      "with shardway calibrate");
}

}  // namespace
}  // namespace shardway::testing
