// Calls that were timed on a machine, and the topology whose prices fit them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardway/plan.h"
#include "shardway/topology.h"

namespace shardway {

// How a call splits its elements among ranks.
enum class Portions : uint8_t {
  even,
  rising,       // as 0 : 1 : 2 : …
  leaning,      // as 3 : 3 : … : 2 : 2, the larger ones first
  alternating,  // as 3 : 1 : 3 : 1 : …
};
inline constexpr Portions kPortions[] = {Portions::even, Portions::rising, Portions::leaning,
                                         Portions::alternating};

[[gnu::visibility("default")]] const char* name_of(Portions parts);

// The elements of each rank; together `count`.
[[gnu::visibility("default")]] std::vector<int64_t> sizes_of(Portions parts, int64_t count, int64_t ranks);

// What the repetitions of one call took. `bytes` is what a rank gathers, reduces, exchanges or sends, in the
// mean over ranks where parts are not even. An exchange turns even parts into others.
struct MeasuredCall {
  StepKind kind = StepKind::all_gather;
  int64_t bytes = 0;
  Portions parts = Portions::even;
  double us = 0;            // the median
  double spread = 0;        // from the lower quartile to the upper one, as a share of the median
  double retest_error = 0;  // by how much the medians of odd and even repetitions differ, as a share
  bool is_held_out = false;

  bool operator==(const MeasuredCall&) const = default;
};

// One call that is repeated.
struct Trial {
  StepKind kind = StepKind::all_gather;
  int64_t bytes = 0;
  Portions parts = Portions::even;
  bool is_held_out = false;
};

// For the fit: every kind at sizes that double from the least to the most, and exchanges to leaning parts, in
// which ranks keep most; and at every second size rising parts. Held out of it: sizes between those, and
// alternating parts.
[[gnu::visibility("default")]] std::vector<Trial> trials_between(int64_t least_bytes, int64_t most_bytes);

// A test-retest error above which figures say little.
inline constexpr double kMostRetestError = 0.25;

// Where, when and how the figures of a topology were measured, and how well they fit.
struct Calibration {
  std::string machine = {};
  std::string processor = {};
  int64_t cores = 1;  // that the ranks could use
  int64_t ranks = 2;
  std::string backend = {};
  std::string date = {};      // 2026-01-31T12:00:00Z
  bool is_complete = true;    // false: it was interrupted
  int64_t repetitions = 0;    // of the call that was repeated least
  double retest_error = 0;    // the median over all calls
  double held_out_error = 0;  // the median over the calls that the fit did not see
  std::vector<MeasuredCall> calls = {};

  bool ranks_share_cores() const { return ranks > cores; }
  bool is_void() const { return retest_error > kMostRetestError; }
  bool operator==(const Calibration&) const = default;
};

// The kinds of steps that have prices of their own.
inline constexpr StepKind kMeasuredKinds[] = {StepKind::all_gather, StepKind::reduce_scatter,
                                              StepKind::all_reduce, StepKind::all_to_all, StepKind::permute};

struct MeasuredTopology {
  Topology topology = {};
  Calibration calibration = {};
};

// What follows from the repetitions of all trials, us[trial][repetition]. `about` has the machine, the ranks
// and whether it is complete. Nothing if a trial was repeated less than twice: sizes would be missing.
[[gnu::visibility("default")]] std::optional<MeasuredTopology> measured_topology(
    const std::vector<Trial>& trials, const std::vector<std::vector<double>>& us, Calibration about);

// The median, and a call by its repetitions in the order in which they were made. They are at least two.
double median_of(std::vector<double> values);
MeasuredCall summary_of(const Trial& trial, const std::vector<double>& repetitions);

// What a call costs between ranks of one host by the planner's prices.
double modelled_us(const Trial& trial, int64_t ranks, const Topology& topology);

// The same by the figures alone, if all ranks have equal parts.
double us_by_figures(StepKind kind, int64_t bytes, int64_t ranks, const Topology& topology);

// The points of even calls, made to rise with the bytes, and which bytes count, by calls of uneven parts.
// Calls that are held out do not count. Throws std::invalid_argument if a kind is missing.
PriceTable fitted_table(const std::vector<MeasuredCall>& calls, int64_t ranks);

// The topology of one host that prices these calls best: base, latency, and bandwidths of links, copies and
// reductions. The sum of the squared relative errors is the least of all figures that are not negative. Only
// even calls that are not held out count. The figures between hosts stay assumed. Throws
// std::invalid_argument if too few calls are left for that. It has no tables.
Topology fitted_topology(const std::vector<MeasuredCall>& calls, int64_t ranks);

// The median relative error of the prices of calls that are held out; of all calls if none is.
double held_out_error(const std::vector<MeasuredCall>& calls, int64_t ranks, const Topology& topology);

}  // namespace shardway
