#include "cli/plan_text.h"

#include <algorithm>
#include <sstream>
#include <vector>

namespace shardway::cli {
namespace {

constexpr size_t kGap = 6;
constexpr size_t kMostLines = 40;
constexpr int64_t kMostDrawnRanks = 64;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// In characters: continuation bytes of UTF-8 do not count.
size_t width_of(const std::string& line) {
  return static_cast<size_t>(std::count_if(
      line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

size_t width_of(const std::vector<std::string>& lines) {
  size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, width_of(line));
  return width;
}

// The cells of "   0 | 0-3 | 4,5 |", each in the colour of its first rank.
std::string coloured(const std::string& line, const Terminal& terminal) {
  const size_t first = line.find('|');
  if (first == std::string::npos) return faint(terminal, line);
  std::string text = faint(terminal, line.substr(0, first));
  for (size_t begin = first; begin < line.size();) {
    const size_t end = std::min(line.find('|', begin + 1), line.size());
    const std::string cell = line.substr(begin + 1, end - begin - 1);
    const size_t digit = cell.find_first_of("0123456789");
    text += faint(terminal, "|");
    text += digit == std::string::npos ? cell : in_colour_of(std::stoll(cell.substr(digit)), terminal, cell);
    begin = end;
  }
  return text;
}

// What draw() shows of a layout under a heading of its own.
struct Picture {
  std::string heading = {};
  std::string caption = {};
  std::vector<std::string> lines = {};

  size_t width() const { return std::max(width_of(lines), heading.size()); }
};

Picture picture_of(const char* when, const Layout& layout, int64_t columns) {
  Picture picture{.heading = std::string(when) + ": " + placements_text(layout)};
  std::vector<std::string> drawn = lines_of(draw(layout, columns));
  drawn.erase(drawn.begin());
  if (drawn.size() > 1) {
    picture.caption = drawn.front();
    drawn.erase(drawn.begin());
  }
  if (drawn.size() > kMostLines) {
    drawn.resize(kMostLines);
    drawn.emplace_back("  …");
  }
  picture.lines = std::move(drawn);
  return picture;
}

std::string stacked(const std::vector<Picture>& pictures, const Terminal& terminal) {
  std::string text;
  for (const Picture& picture : pictures) {
    text += bold(terminal, picture.heading) + "\n";
    for (const std::string& line : picture.lines) text += coloured(line, terminal) + "\n";
    text += '\n';
  }
  return text;
}

std::string side_by_side(const Picture& left, const Picture& right, const Terminal& terminal) {
  const size_t width = left.width() + kGap;
  const auto gap_after = [&](const std::string& line) { return std::string(width - width_of(line), ' '); };
  std::string text =
      bold(terminal, left.heading) + gap_after(left.heading) + bold(terminal, right.heading) + "\n";
  for (size_t i = 0; i < std::max(left.lines.size(), right.lines.size()); ++i) {
    const std::string line = i < left.lines.size() ? left.lines[i] : "";
    text += coloured(line, terminal);
    if (i < right.lines.size()) text += gap_after(line) + coloured(right.lines[i], terminal);
    text += '\n';
  }
  return text + "\n";
}

std::string pictures_of(const Plan& plan, const Terminal& terminal) {
  const int64_t ranks = std::max(plan.from.mesh().size(), plan.to.mesh().size());
  if (ranks > kMostDrawnRanks) {
    return faint(terminal, std::to_string(ranks) + " ranks are too many to draw here; --html shows them") +
           "\n\n";
  }
  const Picture before = picture_of("before", plan.from, terminal.columns);
  const Picture after = picture_of("after", plan.to, terminal.columns);
  const bool fits = before.width() + kGap + after.width() <= static_cast<size_t>(terminal.columns);
  const std::string& caption = before.caption.size() >= after.caption.size() ? before.caption : after.caption;
  return (fits ? side_by_side(before, after, terminal) : stacked({before, after}, terminal)) +
         (caption.empty() ? "" : faint(terminal, caption) + "\n\n");
}

// Headings are bold. What an alternative would have done is faint.
std::string dressed_explanation(const Plan& plan, const Terminal& terminal) {
  std::string text;
  const std::vector<std::string> lines = lines_of(explain(plan, terminal.columns));
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool is_detail = lines[i].starts_with("    ") || lines[i].starts_with("priced by") ||
                           lines[i].starts_with("costs are estimates");
    text += (i == 0 ? bold(terminal, lines[i]) : is_detail ? faint(terminal, lines[i]) : lines[i]) + "\n";
  }
  return text;
}

}  // namespace

std::string plan_text(const Plan& plan, const Terminal& terminal) {
  return pictures_of(plan, terminal) + dressed_explanation(plan, terminal);
}

}  // namespace shardway::cli
