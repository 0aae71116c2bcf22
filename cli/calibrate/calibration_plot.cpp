#include "cli/calibrate/calibration_plot.h"

#include <algorithm>
#include <cstdio>

#include "cli/svg.h"
#include "page/markup.h"
#include "plan/calibration/trial_prices.h"
#include "plan/geometry/number_text.h"

namespace shardway::cli {
namespace {

std::string percent(double share) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%.0f %%", 100 * share);
  return text;
}

// The calls of one kind, smaller ones first.
std::vector<MeasuredCall> calls_of(const Calibration& run, StepKind kind) {
  std::vector<MeasuredCall> calls;
  for (const MeasuredCall& call : run.calls) {
    if (call.kind == kind) calls.push_back(call);
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const MeasuredCall& a, const MeasuredCall& b) { return a.bytes < b.bytes; });
  return calls;
}

svg::LogScales scales_of(const std::vector<MeasuredCall>& calls) {
  const auto by_bytes = [](const MeasuredCall& a, const MeasuredCall& b) { return a.bytes < b.bytes; };
  const auto by_us = [](const MeasuredCall& a, const MeasuredCall& b) { return a.us < b.us; };
  const auto [first, last] = std::minmax_element(calls.begin(), calls.end(), by_bytes);
  const auto [least, most] = std::minmax_element(calls.begin(), calls.end(), by_us);
  return {static_cast<double>(first->bytes), static_cast<double>(last->bytes), least->us, most->us};
}

// One run, as a picture of its own. Prices are asked of the planner's model.
class RunPicture {
 public:
  RunPicture(const Calibration& run, const Topology& topology)
      : run_(run), topology_(topology), scales_(scales_of(run.calls)) {}

  std::string drawn() {
    std::string text =
        svg::text_at(svg::kLeft, 22, "start",
                     std::to_string(run_.ranks) + " ranks on " + std::to_string(run_.cores) +
                         (run_.cores == 1 ? " core, " : " cores, ") + run_.backend + ": " + run_.processor,
                     "title");
    text += svg::text_at(svg::kLeft, 42, "start",
                         run_.date + ": time over bytes; hollow: held out of the fit; lines: prices");
    std::vector<int64_t> sizes;
    for (const MeasuredCall& call : run_.calls) sizes.push_back(call.bytes);
    text += scales_.times_axis() + scales_.bytes_axis(std::move(sizes));
    size_t number = 0;
    for (const StepKind kind : kMeasuredKinds) text += drawn_kind(kind, number++);
    return text + drawn_kind(StepKind::exchange, number);
  }

  double bottom() const { return y_ + svg::kLine; }

 private:
  std::string drawn_kind(StepKind kind, size_t number) {
    const std::vector<MeasuredCall> calls = calls_of(run_, kind);
    if (calls.empty()) return {};
    std::string text;
    std::string line;
    for (const MeasuredCall& call : calls) {
      const Trial trial{.kind = call.kind, .bytes = call.bytes, .parts = call.parts};
      const double us = modelled_us(trial, run_.ranks, topology_);
      text += point(call, us, svg::colour_of(number));
      if (call.parts != Portions::even) continue;
      line +=
          two_decimals(scales_.x(static_cast<double>(call.bytes))) + "," + two_decimals(scales_.y(us)) + " ";
    }
    if (!line.empty())
      text += "<polyline points=\"" + line + "\" stroke=\"" + svg::colour_of(number) + "\"/>\n";
    y_ += svg::kLine;
    return text + svg::legend_line(y_, number,
                                   name_of(kind) + std::string(": error ") +
                                       percent(held_out_error(calls, run_.ranks, topology_)));
  }

  std::string point(const MeasuredCall& call, double priced_us, const std::string& colour) const {
    const std::string paint =
        call.is_held_out ? "fill=\"none\" stroke=\"" + colour + "\"" : "fill=\"" + colour + "\"";
    return "<circle cx=\"" + two_decimals(scales_.x(static_cast<double>(call.bytes))) + "\" cy=\"" +
           two_decimals(scales_.y(call.us)) + "\" r=\"3\" " + paint + "><title>" +
           page::escaped(name_of(call.kind)) + ", parts " + name_of(call.parts) + ", " +
           in_bytes(call.bytes) + ": " + two_decimals(call.us) + " us, priced " + two_decimals(priced_us) +
           "</title></circle>\n";
  }

  const Calibration& run_;
  const Topology& topology_;
  svg::LogScales scales_;
  double y_ = svg::kTop + svg::kHeight + 2 * svg::kLine;  // of the last line of the legend
};

}  // namespace

std::string calibration_svg(const TopologyFile& file) {
  std::string text;
  double height = 0;
  for (const Calibration& run : file.runs) {
    RunPicture picture(run, file.topology);
    text += "<g transform=\"translate(0 " + two_decimals(height) + ")\">\n" + picture.drawn() + "</g>\n";
    height += picture.bottom();
  }
  return svg::picture(height, text);
}

}  // namespace shardway::cli
