#include "cli/sweep_plot.h"

#include <algorithm>

#include "cli/svg.h"
#include "page/markup.h"
#include "plan/geometry/cost_text.h"
#include "plan/geometry/number_text.h"

namespace shardway::cli {
namespace {

constexpr size_t kMostTicks = 8;

// A plan that moves nothing costs nothing, which has no place on such a scale.
bool has_price(const SweepRow& row) { return row.cost_us > 0 && row.cost_us != kImpossible; }

svg::LogScales scales_of(const std::vector<SweepRow>& rows) {
  double least = kImpossible;
  double most = 0;
  for (const SweepRow& row : rows) {
    if (!has_price(row)) continue;
    least = std::min(least, row.cost_us);
    most = std::max(most, row.cost_us);
  }
  if (least > most) least = most = 1;  // none has a price
  return {static_cast<double>(rows.front().length), static_cast<double>(rows.back().length), least, most};
}

double x_of(const svg::LogScales& scales, const SweepRow& row) {
  return scales.x(static_cast<double>(row.length));
}

// Rows between doublings have no tick: they stand where a plan changes.
std::string lengths_axis(const svg::LogScales& scales, const std::vector<SweepRow>& rows) {
  std::vector<const SweepRow*> doublings;
  for (int64_t next = 0; const SweepRow& row : rows) {
    if (next != 0 && row.length < next && &row != &rows.back()) continue;
    doublings.push_back(&row);
    next = 2 * row.length;
  }
  const size_t every = (doublings.size() + kMostTicks - 1) / kMostTicks;
  std::string text;
  for (size_t i = 0; i < doublings.size(); i += every) {
    const double x = x_of(scales, *doublings[i]);
    text += svg::text_at(x, svg::kTop + svg::kHeight + svg::kLine, "middle",
                         std::to_string(doublings[i]->length));
    text +=
        svg::text_at(x, svg::kTop + svg::kHeight + 2 * svg::kLine, "middle", in_bytes(doublings[i]->bytes));
  }
  return text;
}

// Rows with one best plan: those of `begin` to before `end`.
struct PlanStretch {
  size_t begin = 0;
  size_t end = 0;
};

std::vector<PlanStretch> stretches_of(const std::vector<SweepRow>& rows) {
  std::vector<PlanStretch> stretches;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].plan != rows[i - 1].plan) stretches.push_back({.begin = i, .end = i});
    stretches.back().end = i + 1;
  }
  return stretches;
}

// A reader who points at it is told what it is.
std::string point_of(const std::string& x, const std::string& y, const SweepRow& row, size_t number,
                     bool is_estimate) {
  return "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\" fill=\"" + svg::colour_of(number) +
         "\"><title>" + std::to_string(row.length) + ": " + cost_in_us(row.cost_us, is_estimate) + ", " +
         page::escaped(row.plan) + "</title></circle>\n";
}

std::string curve(const svg::LogScales& scales, const std::vector<SweepRow>& rows, const PlanStretch& stretch,
                  size_t number, bool is_estimate) {
  std::string points;
  std::string text;
  for (size_t i = stretch.begin; i < stretch.end; ++i) {
    if (!has_price(rows[i])) continue;
    const std::string x = two_decimals(x_of(scales, rows[i]));
    const std::string y = two_decimals(scales.y(rows[i].cost_us));
    points.append(x).append(",").append(y).append(" ");
    text += point_of(x, y, rows[i], number, is_estimate);
  }
  text.append("<polyline points=\"").append(points).append("\" stroke=\"");
  text.append(svg::colour_of(number)).append("\"/>\n");
  const double x = x_of(scales, rows[stretch.begin]);
  if (number > 0) text += svg::line_between(x, svg::kTop, x, svg::kTop + svg::kHeight);
  return text + svg::text_at(x + 5, svg::kTop + 14, "start", std::to_string(number + 1), "number");
}

std::string legend_text(const SweepRow& first, size_t number) {
  return std::to_string(number + 1) + "  from " + std::to_string(first.length) + " on: " + first.plan;
}

}  // namespace

std::string sweep_svg(const Layout& from, const Layout& to, const Sweep& sweep,
                      const std::vector<SweepRow>& rows, bool is_estimate) {
  const svg::LogScales scales = scales_of(rows);
  const std::vector<PlanStretch> stretches = stretches_of(rows);
  double y = svg::kTop + svg::kHeight + 4 * svg::kLine;  // of the legend
  const double height = y + svg::kLine * static_cast<double>(stretches.size());
  std::string text = svg::text_at(svg::kLeft, 22, "start", sweep_heading(from, to, sweep), "title");
  text += svg::text_at(svg::kLeft, 42, "start",
                       std::string(is_estimate ? "estimated " : "") +
                           "price of the best plan; below, the length and the tensor's size");
  text += scales.times_axis() + lengths_axis(scales, rows);
  for (size_t number = 0; number < stretches.size(); ++number, y += svg::kLine) {
    text += curve(scales, rows, stretches[number], number, is_estimate);
    text += svg::legend_line(y, number, legend_text(rows[stretches[number].begin], number));
  }
  return svg::picture(height, text);
}

}  // namespace shardway::cli
