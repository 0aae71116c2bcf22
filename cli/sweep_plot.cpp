#include "cli/sweep_plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "page/markup.h"
#include "plan/geometry/cost_text.h"
#include "plan/geometry/number_text.h"

namespace shardway::cli {
namespace {

constexpr double kWidth = 860;
constexpr double kLeft = 76;
constexpr double kRight = 40;
constexpr double kTop = 56;
constexpr double kHeight = 300;  // between the axes
constexpr double kLine = 20;     // of text
constexpr size_t kMostTicks = 8;

// Colours that are told apart by most people who see few of them, on white and on black.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"};

constexpr const char* kStyle =
    "<style>"
    "svg{background:#fff;color:#1b1f24;font:13px ui-monospace,monospace}"
    "text{fill:currentColor}.soft{fill:#5c6570}.grid{stroke:#5c6570;stroke-opacity:.25}"
    "polyline{fill:none;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){svg{background:#14181d;color:#e8eaed}.soft{fill:#a4adb8}}"
    "</style>";

// A price on the axis: a power of ten.
std::string power_text(int power) {
  static constexpr const char* kUnits[] = {" ns", " us", " ms", " s"};
  const int unit = std::clamp(static_cast<int>(std::floor(power / 3.0)) + 1, 0, 3);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::pow(10.0, power - 3 * (unit - 1)));
  return std::string(text) + kUnits[unit];
}

// The scales. Lengths and prices are positive, or kImpossible.
class PlotScales {
 public:
  explicit PlotScales(const std::vector<SweepRow>& rows)
      : first_(std::log2(static_cast<double>(rows.front().length))),
        last_(std::max(std::log2(static_cast<double>(rows.back().length)), first_ + 1)) {
    double least = kImpossible;
    double most = 0;
    for (const SweepRow& row : rows) {
      if (!has_price(row)) continue;
      least = std::min(least, row.cost_us);
      most = std::max(most, row.cost_us);
    }
    if (least > most) least = most = 1;  // none has a price
    bottom_ = static_cast<int>(std::floor(std::log10(least)));
    top_ = std::max(static_cast<int>(std::ceil(std::log10(most))), bottom_ + 1);
  }

  // A plan that moves nothing costs nothing, which has no place on such a scale.
  static bool has_price(const SweepRow& row) { return row.cost_us > 0 && row.cost_us != kImpossible; }

  int bottom() const { return bottom_; }
  int top() const { return top_; }
  double x(int64_t length) const {
    const double share = (std::log2(static_cast<double>(length)) - first_) / (last_ - first_);
    return kLeft + share * (kWidth - kLeft - kRight);
  }
  double y(double cost_us) const { return y_of(std::log10(cost_us)); }
  double y_of(double power) const { return kTop + kHeight * (top_ - power) / (top_ - bottom_); }

 private:
  double first_;
  double last_;
  int bottom_ = 0;
  int top_ = 1;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* kind = "soft") {
  return "<text x=\"" + two_decimals(x) + "\" y=\"" + two_decimals(y) + "\" text-anchor=\"" + anchor +
         "\" class=\"" + kind + "\">" + page::escaped(text) + "</text>\n";
}

std::string line_between(double x, double y, double to_x, double to_y) {
  return "<line class=\"grid\" x1=\"" + two_decimals(x) + "\" y1=\"" + two_decimals(y) + "\" x2=\"" +
         two_decimals(to_x) + "\" y2=\"" + two_decimals(to_y) + "\"/>\n";
}

std::string prices_axis(const PlotScales& scales) {
  std::string text;
  for (int power = scales.bottom(); power <= scales.top(); ++power) {
    text += line_between(kLeft, scales.y_of(power), kWidth - kRight, scales.y_of(power));
    text += text_at(kLeft - 8, scales.y_of(power) + 4, "end", power_text(power));
  }
  return text;
}

// Rows between doublings have no tick: they stand where a plan changes.
std::string lengths_axis(const PlotScales& scales, const std::vector<SweepRow>& rows) {
  std::vector<const SweepRow*> doublings;
  for (int64_t next = 0; const SweepRow& row : rows) {
    if (next != 0 && row.length < next && &row != &rows.back()) continue;
    doublings.push_back(&row);
    next = 2 * row.length;
  }
  const size_t every = (doublings.size() + kMostTicks - 1) / kMostTicks;
  std::string text;
  for (size_t i = 0; i < doublings.size(); i += every) {
    const double x = scales.x(doublings[i]->length);
    text += text_at(x, kTop + kHeight + kLine, "middle", std::to_string(doublings[i]->length));
    text += text_at(x, kTop + kHeight + 2 * kLine, "middle", in_bytes(doublings[i]->bytes));
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

const char* colour_of(size_t number) { return kColours[number % std::size(kColours)]; }

// A reader who points at it is told what it is.
std::string point_of(const std::string& x, const std::string& y, const SweepRow& row, size_t number,
                     bool is_estimate) {
  return "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"3.5\" fill=\"" + colour_of(number) + "\"><title>" +
         std::to_string(row.length) + ": " + cost_in_us(row.cost_us, is_estimate) + ", " +
         page::escaped(row.plan) + "</title></circle>\n";
}

std::string curve(const PlotScales& scales, const std::vector<SweepRow>& rows, const PlanStretch& stretch,
                  size_t number, bool is_estimate) {
  std::string points;
  std::string text;
  for (size_t i = stretch.begin; i < stretch.end; ++i) {
    if (!PlotScales::has_price(rows[i])) continue;
    const std::string x = two_decimals(scales.x(rows[i].length));
    const std::string y = two_decimals(scales.y(rows[i].cost_us));
    points.append(x).append(",").append(y).append(" ");
    text += point_of(x, y, rows[i], number, is_estimate);
  }
  text.append("<polyline points=\"").append(points).append("\" stroke=\"");
  text.append(colour_of(number)).append("\"/>\n");
  const double x = scales.x(rows[stretch.begin].length);
  if (number > 0) text += line_between(x, kTop, x, kTop + kHeight);
  return text + text_at(x + 5, kTop + 14, "start", std::to_string(number + 1), "number");
}

std::string legend_line(double y, const SweepRow& first, size_t number) {
  return "<rect x=\"" + two_decimals(kLeft) + "\" y=\"" + two_decimals(y - 10) +
         "\" width=\"10\" height=\"10\" fill=\"" + colour_of(number) + "\"/>\n" +
         text_at(kLeft + 18, y, "start",
                 std::to_string(number + 1) + "  from " + std::to_string(first.length) + " on: " + first.plan,
                 "plan");
}

}  // namespace

std::string sweep_svg(const Layout& from, const Layout& to, const Sweep& sweep,
                      const std::vector<SweepRow>& rows, bool is_estimate) {
  const PlotScales scales(rows);
  const std::vector<PlanStretch> stretches = stretches_of(rows);
  double y = kTop + kHeight + 4 * kLine;  // of the legend
  const double height = y + kLine * static_cast<double>(stretches.size());
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + two_decimals(kWidth) + " " +
                     two_decimals(height) + "\">\n" + kStyle + "\n";
  text += text_at(kLeft, 22, "start", sweep_heading(from, to, sweep), "title");
  text += text_at(kLeft, 42, "start",
                  std::string(is_estimate ? "estimated " : "") +
                      "price of the best plan; below, the length and the tensor's size");
  text += prices_axis(scales) + lengths_axis(scales, rows);
  for (size_t number = 0; number < stretches.size(); ++number, y += kLine) {
    text += curve(scales, rows, stretches[number], number, is_estimate);
    text += legend_line(y, rows[stretches[number].begin], number);
  }
  return text + "</svg>\n";
}

}  // namespace shardway::cli
