#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "plan/calibration/trial_prices.h"
#include "plan/text/calibration_file.h"

namespace shardway {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 256> text{};
  (void)std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string percent(double share) { return formatted("%.0f %%", 100 * share); }

std::string bandwidth(double gib_per_s) {
  return gib_per_s > 0 ? formatted("%.3g GiB/s", gib_per_s) : std::string("too fast to tell");
}

std::string head_of(const Calibration& calibration) {
  return std::to_string(calibration.ranks) + " ranks on " + std::to_string(calibration.cores) +
         (calibration.cores == 1 ? " core" : " cores") +
         (calibration.ranks_share_cores() ? ", which they share" : "") + ": " + calibration.processor + "\n";
}

std::string row_of(StepKind kind, const MeasuredTopology& measured) {
  std::vector<MeasuredCall> calls;
  std::vector<double> retest_errors;
  for (const MeasuredCall& call : measured.calibration.calls) {
    if (call.kind != kind) continue;
    calls.push_back(call);
    retest_errors.push_back(call.retest_error);
  }
  if (calls.empty()) return {};
  return formatted("  %-15s%10s%14s%14s\n", name_of(kind),
                   percent(held_out_error(calls, measured.calibration.ranks, measured.topology)).c_str(),
                   percent(median_of(retest_errors)).c_str(), formatted("%.1f us", calls.front().us).c_str());
}

std::string choice_of(const char* name, const std::optional<MeasuredChoice>& choice) {
  if (!choice) return {};
  return std::string(name) + (choice->saves < 0 ? " costs " : " saves ") + percent(std::abs(choice->saves)) +
         " of a call, half of the repetitions within " + percent(choice->spread) + ": " +
         (!choice->is_on()   ? "no difference, so the default stays"
          : *choice->is_on() ? "groups like this will use it"
                             : "groups like this will not use it") +
         "\n";
}

}  // namespace

std::string report_of(const MeasuredTopology& measured) {
  const Topology& topology = measured.topology;
  const Calibration& calibration = measured.calibration;
  std::string text = head_of(calibration) + "\n" +
                     formatted("  %-15s%10s%14s%14s\n", "op", "error", "test-retest", "smallest");
  for (const StepKind kind : kMeasuredKinds) text += row_of(kind, measured);
  text += row_of(StepKind::exchange, measured);
  text += formatted("\nbase %.3g us, %.3g us a peer, links %s, copies %s, reductions %s\n", topology.base_us,
                    topology.within_host.latency_us, bandwidth(topology.within_host.gib_per_s).c_str(),
                    bandwidth(topology.copy_gib_per_s).c_str(), bandwidth(topology.reduce_gib_per_s).c_str());
  text += "the median error is " + percent(calibration.held_out_error) +
          " on sizes and parts that the fit did not see; odd and even rounds differ by " +
          percent(calibration.retest_error) + " in the median\n";
  text += choice_of("swap", calibration.choices.swap) + choice_of("hand_back", calibration.choices.hand_back);
  if (calibration.is_void()) text += "that is too noisy to rely on: measure again while nothing else runs\n";
  return text;
}

}  // namespace shardway
