#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/calibration/fit.h"
#include "plan/calibration/trial_prices.h"
#include "plan/text/calibration_file.h"
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
                       .us = factor * us_by_figures({.kind = kind, .bytes = bytes}, ranks, topology),
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
      if (kind != StepKind::permute) {
        ASSERT_EQ(steps.front().kind, kind) << name_of(steps.front().kind);
      }
      EXPECT_NEAR(us_by_figures({.kind = kind, .bytes = kBytes}, ranks, kKnown), steps.front().cost_us, 1e-6)
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
    EXPECT_NEAR(us_by_figures(trial_of(call), 2, found), call.us, 1e-6 * call.us) << name_of(call.kind);
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
                     .us = factor * us_by_figures({.kind = StepKind::permute, .bytes = kKiB}, 4, kKnown),
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

// What slows a machine down for a moment slows a whole turn: repetitions of one turn would agree.
TEST(Calibration, OddRoundsAreComparedWithEvenOnes) {
  static_assert(kRepetitionsInATurn == 2);
  // Even rounds: 10, 12, 14, 16. Odd: 20, 22, 24, 26.
  const MeasuredCall call = summary_of({StepKind::all_reduce, kKiB}, {10, 12, 20, 22, 14, 16, 24, 26});
  EXPECT_EQ(call.us, 18);
  EXPECT_NEAR(call.retest_error, 10.0 / 18, 1e-12);
  EXPECT_NEAR(call.spread, (22.5 - 13.5) / 18, 1e-12);
  EXPECT_NEAR(summary_of({}, {10, 30}).retest_error, 1, 1e-12) << "one round has no other";
  EXPECT_TRUE(refuses_with([] { summary_of({StepKind::all_reduce, kKiB}, {1}); }, "two repetitions"));
}

// Calls whose prices bend, by the bytes of the busiest rank and of the mean rank.
double bent_us(StepKind kind, double bytes) {
  const double factor = 1 + static_cast<double>(kind);
  return factor * (bytes < 100000 ? 5 + bytes / 10000 : 15 + (bytes - 100000) / 1000);
}

// Half of the calls lose a slice of the scheduler to another program.
TEST(Calibration, CallsThatOtherProgramsDelayDoNotCount) {
  const std::vector<Trial> trials = trials_between(kKiB, 64 * kKiB);
  TrialTimes us;
  for (size_t i = 0; i < trials.size(); ++i) {
    const double quick = bent_us(trials[i].kind, static_cast<double>(trials[i].bytes));
    us.emplace_back();
    for (size_t k = 0; k < 24; ++k) us.back().push_back(quick + ((7 * i + 5 * k) % 11 < 5 ? 3000 : 0));
  }
  const auto found = measured_topology(trials, us, {.ranks = 4});
  ASSERT_TRUE(found);
  for (size_t i = 0; i < trials.size(); ++i)
    EXPECT_EQ(found->calibration.calls[i].us, *std::min_element(us[i].begin(), us[i].end()));
  EXPECT_EQ(found->calibration.retest_error, 0);
}

double counted_bytes(const Trial& trial, int64_t ranks, double busiest_share) {
  if (trial.kind == StepKind::all_gather || trial.parts == Portions::even)
    return static_cast<double>(trial.bytes);
  const std::vector<int64_t> sizes = sizes_of(trial.parts, trial.bytes * ranks, ranks);
  const auto most = static_cast<double>(*std::max_element(sizes.begin(), sizes.end()));
  return busiest_share * most + (1 - busiest_share) * static_cast<double>(trial.bytes);
}

std::vector<MeasuredCall> bent_calls(int64_t ranks, double busiest_share) {
  std::vector<MeasuredCall> calls;
  for (const Trial& trial : trials_between(kKiB, 4096 * kKiB)) {
    if (trial.kind == StepKind::exchange) continue;
    const double us = bent_us(trial.kind, counted_bytes(trial, ranks, busiest_share));
    calls.push_back(summary_of(trial, {us, us}));
  }
  return calls;
}

TEST(Calibration, PartsAddUpAndAreAsTheirNameSays) {
  EXPECT_EQ(sizes_of(Portions::even, 10, 4), (std::vector<int64_t>{2, 3, 2, 3}));
  EXPECT_EQ(sizes_of(Portions::rising, 12, 4), (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(sizes_of(Portions::rising, 5, 2), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(sizes_of(Portions::leaning, 26, 5), (std::vector<int64_t>{6, 6, 6, 4, 4}));
  EXPECT_EQ(sizes_of(Portions::alternating, 16, 4), (std::vector<int64_t>{6, 2, 6, 2}));
}

// A line from base and bandwidth cannot follow these calls; the table does, between its points too.
TEST(Calibration, ATableFollowsPricesThatBend) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    for (const double share : {0.0, 0.3, 1.0}) {
      const std::vector<MeasuredCall> calls = bent_calls(ranks, share);
      Topology found = fitted_topology(calls, ranks);
      EXPECT_GT(held_out_error(calls, ranks, found), 0.2);
      const PriceTable table = fitted_table(calls, ranks);
      EXPECT_NEAR(table.curves.at("all_to_all").busiest_share, share, 1e-9) << ranks;
      EXPECT_NEAR(table.curves.at("reduce_scatter").busiest_share, share, 1e-9) << ranks;
      found.tables = std::make_shared<const PriceTables>(PriceTables{table});
      EXPECT_LT(held_out_error(calls, ranks, found), 0.02) << ranks << " ranks, share " << share;
    }
  }
}

// The peer of two ranks is both "one peer", as of a permute, and "all peers", as of an all_to_all.
TEST(Calibration, EveryKindCostsWhatItTookBetweenTwoRanks) {
  Topology topology = kKnown;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{fitted_table(bent_calls(2, 1), 2)});
  for (const StepKind kind : kMeasuredKinds) {
    const Trial trial{.kind = kind, .bytes = 64 * kKiB};
    EXPECT_NEAR(modelled_us(trial, 2, topology), bent_us(kind, 64.0 * kKiB), 1e-6) << name_of(kind);
  }
}

TEST(Calibration, APointThatIsTooLowDoesNotMakeMoreBytesCheaper) {
  std::vector<MeasuredCall> calls = calls_by(kKnown, 4);
  std::vector<MeasuredCall*> gathers;
  for (MeasuredCall& call : calls) {
    call.is_held_out = false;
    if (call.kind != StepKind::all_gather) continue;
    gathers.push_back(&call);
    call.us = 10 * static_cast<double>(gathers.size());
  }
  gathers[4]->us = 32.4;
  const PriceCurve curve = fitted_table(calls, 4).curves.at("all_gather");
  ASSERT_EQ(curve.points.size(), gathers.size());
  EXPECT_EQ(curve.points[2].us, 30);
  EXPECT_NEAR(curve.points[3].us, 36, 1e-9);  // the geometric mean of 40 and 32.4
  EXPECT_NEAR(curve.points[4].us, 36, 1e-9);
  EXPECT_EQ(curve.points[5].us, 60);
}

// Among 4 ranks: what moves costs as a permute does, and what stays a fifth of that; and a step costs
// `more_us`.
std::vector<MeasuredCall> calls_with_exchanges(double more_us) {
  std::vector<MeasuredCall> calls = bent_calls(4, 0);
  for (const Trial& trial : trials_between(kKiB, 4096 * kKiB)) {
    if (trial.kind != StepKind::exchange) continue;
    const auto bytes = static_cast<double>(trial.bytes);
    // Worked out by hand, for a quarter of the whole each before: what ranks of rising parts (borders 0, 0,
    // 1/6, 1/2, 1), leaning ones (0, 0.3, 0.6, 0.8, 1) and alternating ones (0, 3/8, 1/2, 7/8, 1) keep.
    const double kept = trial.parts == Portions::rising    ? 0.25
                        : trial.parts == Portions::leaning ? 0.8
                                                           : 0.75;
    const double us = bent_us(StepKind::permute, bytes) * (1 - 0.8 * kept) + more_us;
    calls.push_back(summary_of(trial, {us, us}));
  }
  return calls;
}

TEST(Calibration, FindsWhatExchangesCostByWhatRanksKeep) {
  const std::vector<MeasuredCall> calls = calls_with_exchanges(0);
  const PriceTable table = fitted_table(calls, 4);
  EXPECT_NEAR(table.kept_share, 0.8, 1e-3);
  EXPECT_EQ(table.curves.at("exchange").points.size(), table.curves.at("permute").points.size());
  Topology topology = kKnown;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{table});
  std::vector<MeasuredCall> alternating;
  for (const MeasuredCall& call : calls) {
    if (call.kind == StepKind::exchange && call.is_held_out) alternating.push_back(call);
  }
  EXPECT_LT(held_out_error(alternating, 4, topology), 0.02);
}

TEST(Calibration, FindsWhatAStepCostsMoreThanItsCollective) {
  const double least_us = fitted_table(calls_with_exchanges(0), 4).step_us;
  EXPECT_NEAR(fitted_table(calls_with_exchanges(500), 4).step_us - least_us, 500, 50);
}

TEST(Calibration, ItsTableIsWhatThePlannerCharges) {
  for (const int64_t ranks : {2, 3, 4}) {
    Topology topology = kKnown;
    topology.tables =
        std::make_shared<const PriceTables>(PriceTables{fitted_table(bent_calls(ranks, 0.3), ranks)});
    for (const StepKind kind : kMeasuredKinds) {
      for (const int64_t bytes : {int64_t{600}, 24 * kKiB, 1200 * kKiB}) {
        const std::vector<Step> steps = steps_along(layouts_of(kind, bytes, ranks), {.topology = topology});
        ASSERT_EQ(steps.size(), 1U);
        EXPECT_NEAR(modelled_us({.kind = kind, .bytes = bytes}, ranks, topology), steps.front().cost_us, 1e-6)
            << name_of(kind) << " of " << bytes << " among " << ranks;
        EXPECT_FALSE(steps.front().is_extrapolated);
      }
    }
    const Layout even({ranks * 48 * kKiB}, DType::u8, Mesh({ranks}), {shard(0)});
    const Layout other = even.with({shard(0, sizes_of(Portions::alternating, ranks * 48 * kKiB, ranks))});
    const Trial exchange{.kind = StepKind::exchange, .bytes = 48 * kKiB, .parts = Portions::alternating};
    EXPECT_NEAR(modelled_us(exchange, ranks, topology),
                steps_along({even, other}, {.topology = topology}).front().cost_us, 1e-6);
  }
}

TEST(Calibration, BeyondTheLastPointAPriceIsExtrapolated) {
  Topology topology = kKnown;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{fitted_table(bent_calls(4, 1), 4)});
  const auto layouts = layouts_of(StepKind::all_gather, 8192 * kKiB, 4);
  const auto best = plan(layouts[0], layouts[1], {.topology = topology});
  ASSERT_EQ(best->steps.size(), 1U);
  EXPECT_TRUE(best->steps.front().is_extrapolated);
  EXPECT_NEAR(best->cost_us, 2 * bent_us(StepKind::all_gather, 4096.0 * kKiB), 1e-6);
  EXPECT_NE(explain(*best).find("extrapolated"), std::string::npos);
  EXPECT_TRUE(plan_from_json(to_json(*best)).steps.front().is_extrapolated);
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
          .choices = {.swap = MeasuredChoice{.saves = 0.2, .spread = 0.03},
                      .hand_back = MeasuredChoice{.saves = -0.01, .spread = 0.02}},
          .calls = calls_by(kKnown, 4)};
}

std::string file_of(const Calibration& calibration) {
  return to_json(TopologyFile{.topology = kKnown, .runs = {calibration}});
}

std::string with(std::string text, const std::string& piece, const std::string& by) {
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), by);
}

TEST(CalibrationFile, WrittenAndReadIsTheSame) {
  const std::string text = file_of(any_calibration());
  EXPECT_EQ(topology_from_json(text), kKnown);
  EXPECT_EQ(topology_file_from_json(text, "my.json").runs, std::vector{any_calibration()});
}

TEST(CalibrationFile, WithoutChoicesOfSharedMemoryIsReadAsBefore) {
  Calibration without = any_calibration();
  without.choices = {};
  const std::string text = file_of(without);
  EXPECT_EQ(text.find("tuning"), std::string::npos);
  EXPECT_EQ(topology_file_from_json(text, "my.json").runs, std::vector{without});
}

TEST(CalibrationFile, TellsTheChoicesOfItsProcessorAndRanks) {
  Calibration of_two = any_calibration();
  of_two.ranks = 2;
  of_two.choices.swap = std::nullopt;
  const TopologyFile file{.topology = kKnown, .runs = {any_calibration(), of_two}};
  EXPECT_EQ(choices_in(file, "AMD EPYC", 4), any_calibration().choices);
  EXPECT_EQ(choices_in(file, "AMD EPYC", 2), of_two.choices);
  EXPECT_EQ(choices_in(file, "AMD EPYC", 3), MeasuredChoices{});
  EXPECT_EQ(choices_in(file, "Intel Xeon", 4), MeasuredChoices{});
  EXPECT_EQ(choices_in({}, "AMD EPYC", 4), MeasuredChoices{});
}

TEST(CalibrationFile, HasTheTable) {
  Topology topology = kKnown;
  topology.tables = std::make_shared<const PriceTables>(PriceTables{fitted_table(bent_calls(4, 0.3), 4)});
  const std::string text = to_json(TopologyFile{.topology = topology, .runs = {any_calibration()}});
  EXPECT_EQ(topology_from_json(text), topology);
  EXPECT_FALSE(topology_from_json(text) == kKnown);
  const auto refused = [](const std::string& changed, const auto&... words) {
    return refuses_with([&] { topology_from_json(changed, "my.json"); }, "my.json", words...);
  };
  EXPECT_TRUE(refused(with(text, "\"version\": 2", "\"version\": 1"), "tables", "version 2"));
  EXPECT_TRUE(refused(with(text, "\"permute\": {", "\"permut\": {"), "tables", "permute"));
  EXPECT_TRUE(
      refused(with(text, "\"busiest_share\": 0.3", "\"busiest_share\": 3"), "busiest_share", "0 to 1"));
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
  EXPECT_TRUE(refused(with(text, "\"version\": 1", "\"version\": 3"), "version", "3"));
  EXPECT_TRUE(refused(with(text, "\"machine\"", "\"maschine\""), "measured", "maschine"));
  EXPECT_TRUE(refused(with(text, "\"op\": \"all_gather\"", "\"op\": \"slice\""), "calls[0].op", "slice"));
  EXPECT_TRUE(refused(with(text, "\"ranks\": 4", "\"ranks\": 1"), "measured.ranks", "at least 2"));
  EXPECT_TRUE(refused(with(text, "\"cores\": 2", "\"cores\": 8"), "ranks_share_cores", "contradicts"));
  EXPECT_TRUE(refused(with(text, "\"hand_back\"", "\"handback\""), "measured.tuning", "handback"));
  EXPECT_TRUE(refused(with(text, "\"saves\": 0.2", "\"saves\": 1"), "tuning.swap.saves", "share"));
  EXPECT_TRUE(refused(with(text, "\"held_out_error\": 0.11", "\"held_out_error\": -1"), "held_out_error"));
  EXPECT_TRUE(refused("{\"figures\": [1, 2]}", "version"));
  EXPECT_TRUE(refused("PK\x03\x04"));
}

TEST(CalibrationDoubts, NameAnotherProcessorOtherCoresAndOtherRanks) {
  const Calibration calibration = any_calibration();
  EXPECT_EQ(doubt_about({calibration}, {.processor = "AMD EPYC", .cores = 2, .ranks = 4}), "");
  EXPECT_EQ(doubt_about({calibration}, {.processor = "AMD EPYC", .cores = 2}), "");
  EXPECT_EQ(doubt_about({calibration}, {.processor = "Intel Xeon", .cores = 2, .ranks = 4}),
            "its figures were measured on another processor (AMD EPYC; here it is Intel Xeon): measure again "
            "with shardway calibrate");
  EXPECT_EQ(
      doubt_about({calibration}, {.processor = "AMD EPYC", .cores = 16, .ranks = 8}),
      "its figures were measured with 2 cores (here 16) and with 4 ranks (this is for 8): measure again "
      "with shardway calibrate");
  Calibration of_two = calibration;
  of_two.ranks = 2;
  EXPECT_EQ(doubt_about({calibration, of_two}, {.ranks = 2}), "");
  EXPECT_EQ(
      doubt_about({calibration, of_two}, {.ranks = 8}),
      "its figures were measured with 2 and 4 ranks (this is for 8): measure again with shardway calibrate");
  EXPECT_EQ(doubt_about({}, {.ranks = 8}), "");
}

MeasuredTopology run_of(int64_t ranks, double factor) {
  MeasuredTopology run{.topology = kKnown, .calibration = any_calibration()};
  run.topology.base_us *= factor;
  run.calibration.ranks = ranks;
  run.calibration.calls = calls_by(kKnown, ranks, factor);
  run.topology.tables =
      std::make_shared<const PriceTables>(PriceTables{fitted_table(run.calibration.calls, ranks)});
  return run;
}

std::vector<int64_t> ranks_of_tables(const Topology& topology) {
  std::vector<int64_t> ranks;
  for (const PriceTable& table : *topology.tables) ranks.push_back(table.ranks);
  return ranks;
}

TEST(JoinedRuns, KeepTheOtherGroupsAndReplaceTheirOwn) {
  TopologyFile file = joined({}, run_of(4, 1));
  file = joined(file, run_of(2, 2));
  file = topology_file_from_json(to_json(joined(file, run_of(4, 3))), "my.json");
  EXPECT_EQ(ranks_of_tables(file.topology), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(file.topology.tables->at(0), run_of(2, 2).topology.tables->front());
  EXPECT_EQ(file.topology.tables->at(1), run_of(4, 3).topology.tables->front());
  EXPECT_EQ(file.runs, (std::vector{run_of(4, 3).calibration, run_of(2, 2).calibration}));
  EXPECT_EQ(file.topology.base_us, 3 * kKnown.base_us) << "the figures are those of the newest run";
}

TEST(JoinedRuns, KeepWhatTheFileSaysOfHosts) {
  TopologyFile file = joined({}, run_of(4, 1));
  file.topology.between_hosts = {.latency_us = 30, .gib_per_s = 0.5};
  file.topology.host_of_rank = {0, 1, 0};
  file.topology.two_levels = true;
  const Topology found = joined(file, run_of(2, 2)).topology;
  EXPECT_EQ(found.between_hosts.latency_us, 30);
  EXPECT_EQ(found.between_hosts.gib_per_s, 0.5);
  EXPECT_EQ(found.host_of_rank, file.topology.host_of_rank);
  EXPECT_TRUE(found.two_levels);
}

TEST(Doubts, CountTheRanksOfTheFullestHost) {
  EXPECT_EQ(most_ranks_on_a_host({}, 6), 6);
  EXPECT_EQ(most_ranks_on_a_host({.ranks_per_host = 4}, 6), 4);
  EXPECT_EQ(most_ranks_on_a_host({.host_of_rank = {0, 1, 0, 2}}, 4), 2);
  EXPECT_EQ(most_ranks_on_a_host({.host_of_rank = {0, 1, 0, 2}}, 5), 5) << "not all of them are known";
}

TEST(JoinedRuns, AreOfOneMachineAndOneBackend) {
  const TopologyFile file = joined({}, run_of(4, 1));
  Calibration run = run_of(2, 1).calibration;
  EXPECT_EQ(objection_to_joining(file, run), "");
  run.cores = 16;
  EXPECT_EQ(objection_to_joining(file, run),
            "it was measured on another machine (AMD EPYC, 2 cores; this one has AMD EPYC, 16 cores)");
  run = run_of(2, 1).calibration;
  run.backend = "gloo";
  EXPECT_EQ(objection_to_joining(file, run), "it was measured with shared memory, and this is gloo");
  EXPECT_NE(objection_to_joining({.topology = kKnown}, run), "");
}

TEST(JoinedRuns, TwoOfAsManyRanksAreRefused) {
  const TopologyFile file{.topology = kKnown, .runs = {any_calibration(), any_calibration()}};
  EXPECT_TRUE(refuses_with([&] { topology_from_json(to_json(file), "my.json"); }, "my.json",
                           "also_measured[0].ranks", "another run"));
}

}  // namespace
}  // namespace shardway::testing
