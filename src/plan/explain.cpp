// A plan as text: what it does, what that costs, and what lost.
#include <algorithm>
#include <cstdio>

#include "plan/numbers.h"
#include "shardway/plan.h"

namespace shardway {
namespace {

std::string in_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

// In characters, not bytes: a dash of three dots is one.
std::string shortened(const std::string& text, int64_t columns) {
  const auto width = static_cast<size_t>(std::max<int64_t>(columns, 8));
  return text.size() <= width ? text : text.substr(0, width - 1) + "…";
}

std::string span_of(const Step& step) {
  std::string text = name_of(step.kind);
  for (size_t i = 0; i < step.mesh_dims.size(); ++i) {
    const auto& names = step.from.mesh().names();
    const auto dim = static_cast<size_t>(step.mesh_dims[i]);
    text += (i == 0 ? " over " : ", ") + (names.empty() ? "mesh dim " + std::to_string(dim) : names[dim]);
  }
  return text;
}

std::string target_of(const Step& step) {
  const std::string text = placements_text(step.to);
  return step.from.mesh() == step.to.mesh() ? text : text + " on " + to_string(step.to.mesh());
}

struct Table {
  std::vector<std::vector<std::string>> rows = {};

  // Columns as wide as their widest entry; the first two to the left, figures to the right.
  std::string text() const {
    std::vector<size_t> widths(rows.front().size(), 0);
    for (const auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
      std::string line = " ";
      for (size_t i = 0; i < row.size(); ++i) {
        const std::string space(widths[i] - row[i].size(), ' ');
        line += " " + (i < 3 ? row[i] + space : space + row[i]) + " ";
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }
};

std::string steps_table(const Plan& plan) {
  Table table{.rows = {{"", "step", "to", "us", "of it waiting", "sent", "peak"}}};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    table.rows.push_back({std::to_string(i + 1), span_of(step), target_of(step), two_decimals(step.cost_us),
                          two_decimals(step.latency_us), in_bytes(step.bytes), in_bytes(step.peak_bytes)});
  }
  return table.text();
}

}  // namespace

std::string explain(const Plan& plan, int64_t columns) {
  std::string text = to_string(plan.from) + "  ->  ";
  text +=
      (plan.from.mesh() == plan.to.mesh() ? "" : to_string(plan.to.mesh()) + ": ") + placements_text(plan.to);
  text += "\n";
  if (plan.steps.empty()) return text + "nothing to do: the layouts are the same\n";
  text += std::to_string(plan.steps.size()) + (plan.steps.size() == 1 ? " step, " : " steps, ") +
          two_decimals(plan.cost_us) + " us; the busiest rank sends " + in_bytes(plan.bytes) +
          ", all ranks " + in_bytes(plan.total_bytes) + "; peak memory " + in_bytes(plan.peak_bytes) +
          "\n\n" + steps_table(plan) + "\n";
  for (const Alternative& lost : plan.alternatives) {
    text += lost.name + ": " + two_decimals(lost.cost_us) + " us, " + lost.reason + "\n";
    text += "    " + shortened(lost.text, columns - 4) + "\n";
  }
  text += "priced by the " + plan.topology + " topology among " + std::to_string(plan.layouts_searched) +
          " layouts; " + std::to_string(plan.steps_priced) + " steps between them were priced\n";
  return text;
}

}  // namespace shardway
