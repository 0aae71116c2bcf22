#include "cli/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "page/markup.h"
#include "plan/geometry/number_text.h"

namespace shardway::cli::svg {
namespace {

constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"};

constexpr const char* kStyle =
    "<style>"
    "svg{background:#fff;color:#1b1f24;font:13px ui-monospace,monospace}"
    "text{fill:currentColor}.soft{fill:#5c6570}.grid{stroke:#5c6570;stroke-opacity:.25}"
    "polyline{fill:none;stroke-width:2.5}"
    "@media(prefers-color-scheme:dark){svg{background:#14181d;color:#e8eaed}.soft{fill:#a4adb8}}"
    "</style>";

// A time on the axis: a power of ten.
std::string power_text(int power) {
  static constexpr const char* kUnits[] = {" ns", " us", " ms", " s"};
  const int unit = std::clamp(static_cast<int>(std::floor(power / 3.0)) + 1, 0, 3);
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::pow(10.0, power - 3 * (unit - 1)));
  return std::string(text) + kUnits[unit];
}

}  // namespace

std::string picture(double height, const std::string& content) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + two_decimals(kWidth) + " " +
         two_decimals(height) + "\">\n" + kStyle + "\n" + content + "</svg>\n";
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* kind) {
  return "<text x=\"" + two_decimals(x) + "\" y=\"" + two_decimals(y) + "\" text-anchor=\"" + anchor +
         "\" class=\"" + kind + "\">" + page::escaped(text) + "</text>\n";
}

std::string line_between(double x, double y, double to_x, double to_y) {
  return "<line class=\"grid\" x1=\"" + two_decimals(x) + "\" y1=\"" + two_decimals(y) + "\" x2=\"" +
         two_decimals(to_x) + "\" y2=\"" + two_decimals(to_y) + "\"/>\n";
}

std::string legend_line(double y, size_t number, const std::string& text) {
  return "<rect x=\"" + two_decimals(kLeft) + "\" y=\"" + two_decimals(y - 10) +
         "\" width=\"10\" height=\"10\" fill=\"" + colour_of(number) + "\"/>\n" +
         text_at(kLeft + 18, y, "start", text, "plan");
}

const char* colour_of(size_t number) { return kColours[number % std::size(kColours)]; }

LogScales::LogScales(double first, double last, double least_us, double most_us)
    : first_(std::log2(first)),
      last_(std::max(std::log2(last), first_ + 1)),
      bottom_(static_cast<int>(std::floor(std::log10(least_us)))),
      top_(std::max(static_cast<int>(std::ceil(std::log10(most_us))), bottom_ + 1)) {}

double LogScales::x(double value) const {
  return kLeft + (std::log2(value) - first_) / (last_ - first_) * (kWidth - kLeft - kRight);
}

double LogScales::y(double us) const { return y_of(std::log10(us)); }

double LogScales::y_of(double power) const { return kTop + kHeight * (top_ - power) / (top_ - bottom_); }

std::string LogScales::times_axis() const {
  std::string text;
  for (int power = bottom_; power <= top_; ++power) {
    text += line_between(kLeft, y_of(power), kWidth - kRight, y_of(power));
    text += text_at(kLeft - 8, y_of(power) + 4, "end", power_text(power));
  }
  return text;
}

std::string LogScales::bytes_axis(std::vector<int64_t> sizes) const {
  constexpr int64_t kTickFactor = 8;
  std::sort(sizes.begin(), sizes.end());
  std::string text;
  int64_t next = 0;
  for (const int64_t bytes : sizes) {
    if (bytes < next) continue;
    next = kTickFactor * bytes;
    text += text_at(x(static_cast<double>(bytes)), kTop + kHeight + kLine, "middle", in_bytes(bytes));
  }
  return text;
}

}  // namespace shardway::cli::svg
