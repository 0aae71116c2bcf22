#include <algorithm>

#include "cli/bench/bench_report.h"
#include "cli/svg.h"
#include "page/markup.h"
#include "plan/geometry/number_text.h"

namespace shardway::cli {
namespace {

// The rows of one call of one library.
struct CallCurve {
  std::vector<BenchRow> rows = {};

  std::string name() const {
    const MeasuredCall& call = rows.front().call;
    return name_of(call.kind) +
           (call.parts == Portions::even ? "" : std::string(", parts ") + name_of(call.parts)) +
           (rows.front().library == kOwnLibrary ? "" : ", " + rows.front().library);
  }
};

std::vector<CallCurve> curves_of(const std::vector<BenchRow>& rows) {
  std::vector<CallCurve> curves;
  for (const BenchRow& row : rows) {
    const auto found = std::find_if(curves.begin(), curves.end(), [&](const CallCurve& curve) {
      const BenchRow& first = curve.rows.front();
      return first.library == row.library && first.call.kind == row.call.kind &&
             first.call.parts == row.call.parts;
    });
    if (found != curves.end()) {
      found->rows.push_back(row);
    } else {
      curves.push_back({.rows = {row}});
    }
  }
  return curves;
}

svg::LogScales scales_of(const std::vector<BenchRow>& rows) {
  const auto by_bytes = [](const BenchRow& a, const BenchRow& b) { return a.call.bytes < b.call.bytes; };
  const auto by_us = [](const BenchRow& a, const BenchRow& b) { return a.call.us < b.call.us; };
  const auto [first, last] = std::minmax_element(rows.begin(), rows.end(), by_bytes);
  const auto [least, most] = std::minmax_element(rows.begin(), rows.end(), by_us);
  return {static_cast<double>(first->call.bytes), static_cast<double>(last->call.bytes), least->call.us,
          most->call.us};
}

std::string drawn(const CallCurve& curve, const svg::LogScales& scales, size_t number) {
  std::string points;
  std::string text;
  for (const BenchRow& row : curve.rows) {
    const std::string x = two_decimals(scales.x(static_cast<double>(row.call.bytes)));
    const std::string y = two_decimals(scales.y(row.call.us));
    points.append(x).append(",").append(y).append(" ");
    text.append("<circle cx=\"").append(x).append("\" cy=\"").append(y).append("\" r=\"3\" fill=\"");
    text.append(svg::colour_of(number)).append("\"><title>").append(page::escaped(curve.name()));
    text.append(", ").append(in_bytes(row.call.bytes)).append(": ").append(two_decimals(row.call.us));
    text.append(" us, ").append(two_decimals(row.busbw)).append(" GB/s on the bus</title></circle>\n");
  }
  return text + "<polyline points=\"" + points + "\" stroke=\"" + svg::colour_of(number) + "\"/>\n";
}

}  // namespace

std::string bench_svg(const BenchResult& result) {
  const BenchSetting& setting = result.setting;
  const std::vector<CallCurve> curves = curves_of(result.rows);
  const svg::LogScales scales = scales_of(result.rows);
  std::string text =
      svg::text_at(svg::kLeft, 22, "start",
                   std::to_string(setting.ranks) + " ranks on " + std::to_string(setting.cores) +
                       " cores, shared memory: " + setting.processor,
                   "title");
  text += svg::text_at(svg::kLeft, 42, "start",
                       "time of a call over its bytes; shardway " + setting.version + ", " + setting.date);
  std::vector<int64_t> sizes;
  for (const BenchRow& row : result.rows) sizes.push_back(row.call.bytes);
  text += scales.times_axis() + scales.bytes_axis(std::move(sizes));
  double y = svg::kTop + svg::kHeight + 3 * svg::kLine;
  for (size_t number = 0; number < curves.size(); ++number, y += svg::kLine) {
    text += drawn(curves[number], scales, number);
    text += svg::legend_line(y, number, curves[number].name());
  }
  return svg::picture(y, text);
}

}  // namespace shardway::cli
