// A plan as text: what it does, what that costs, and what lost.
#include <algorithm>
#include <numeric>

#include "plan/geometry/cost_text.h"
#include "plan/geometry/number_text.h"
#include "shardway/plan.h"

namespace shardway {
namespace {

constexpr const char* kHowToMeasure =
    "costs are estimates from assumed figures; `shardway calibrate` measures those of a machine";
constexpr const char* kBeyondWhatWasMeasured =
    "it moves more than was measured: costs are extrapolated; `shardway calibrate --most` measures larger "
    "sizes";
constexpr int64_t kWideEnoughForAll = 96;
constexpr size_t kLeastWidth = 8;

// In characters: continuation bytes of UTF-8 do not count.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xC0U) != 0x80U;
  }));
}

std::string shortened(const std::string& text, size_t columns) {
  const size_t width = std::max(columns, kLeastWidth);
  return text.size() <= width ? text : text.substr(0, width - 1) + "…";
}

// all_gather over dp, tp; or, without names, over mesh dims 0, 1
std::string span_of(const Step& step) {
  std::string text = name_of(step.kind);
  const auto& names = step.from.mesh().names();
  for (size_t i = 0; i < step.mesh_dims.size(); ++i) {
    const auto dim = static_cast<size_t>(step.mesh_dims[i]);
    const char* numbered = step.mesh_dims.size() == 1 ? " over mesh dim " : " over mesh dims ";
    text += i > 0 ? ", " : names.empty() ? numbered : " over ";
    text += names.empty() ? std::to_string(dim) : names[dim];
  }
  return text;
}

std::string target_of(const Step& step) {
  const std::string text = placements_text(step.to);
  return step.from.mesh() == step.to.mesh() ? text : text + " on " + to_string(step.to.mesh());
}

// Broken at spaces so that lines fit; the lines after the first begin with four spaces.
std::string wrapped(const std::string& text, int64_t columns) {
  std::string result;
  std::string line;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin + 1), text.size());
    if (!line.empty() && static_cast<int64_t>(line.size() + end - begin) > columns) {
      result += line + "\n";
      line = "   ";
    }
    line += text.substr(begin, end - begin);
    begin = end;
  }
  return result + line + "\n";
}

using TextRow = std::vector<std::string>;

// Columns are as wide as their widest entry; the third one is narrower if lines would not fit. The first
// three are aligned to the left, figures to the right.
std::string table_of(std::vector<TextRow> rows, int64_t columns) {
  constexpr size_t kNarrowed = 2;
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const TextRow& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  const auto whole = static_cast<int64_t>(std::accumulate(widths.begin(), widths.end(), 2 * widths.size()));
  if (whole > columns && widths[kNarrowed] > kLeastWidth) {
    const auto room = static_cast<int64_t>(widths[kNarrowed]) - (whole - columns);
    widths[kNarrowed] = static_cast<size_t>(std::max<int64_t>(room, kLeastWidth));
    for (TextRow& row : rows) row[kNarrowed] = shortened(row[kNarrowed], widths[kNarrowed]);
  }
  std::string text;
  for (const TextRow& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      line += " " + (i <= kNarrowed ? row[i] + space : space + row[i]) + " ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string steps_table(const Plan& plan, int64_t columns) {
  const bool is_wide = columns >= kWideEnoughForAll;
  const bool is_estimate = gives_estimates(plan.topology);
  const std::string us = is_estimate ? "est. us" : "us";
  std::vector<TextRow> rows = {{"", "step", "to", us, "of it waiting", "sent", "peak"}};
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    rows.push_back({std::to_string(i + 1), span_of(step), target_of(step),
                    cost_text(step.cost_us, is_estimate), cost_text(step.latency_us, is_estimate),
                    in_bytes(step.bytes), in_bytes(step.peak_bytes)});
  }
  if (plan.in_two_levels) {
    rows.front().emplace_back("crossing");
    for (size_t i = 0; i < plan.steps.size(); ++i)
      rows[i + 1].push_back(in_bytes(plan.steps[i].crossing_bytes));
  }
  constexpr int64_t kWaiting = 4;
  for (TextRow& row : rows) {
    if (!is_wide) row.erase(row.begin() + kWaiting);
  }
  return table_of(std::move(rows), columns);
}

// Who stands where now. Many ranks are counted.
std::string places_of(const Relabelling& relabelling) {
  constexpr size_t kMostListed = 16;
  const size_t count = relabelling.ranks.size();
  if (count <= kMostListed)
    return "ranks " + ranges_of(relabelling.ranks) + " stand where " + ranges_of(relabelling.given_ranks) +
           " were given";
  size_t moved = 0;
  for (size_t i = 0; i < count; ++i) moved += relabelling.ranks[i] == relabelling.given_ranks[i] ? 0 : 1;
  return std::to_string(moved) + " of " + std::to_string(count) + " places have other ranks than were given";
}

}  // namespace

std::string to_string(const Relabelling& relabelling) {
  if (relabelling.ranks == relabelling.given_ranks)
    return "relabelling saves nothing: the ranks stand where they were given";
  return "relabelled: " + places_of(relabelling) + ", and all ranks send " +
         in_bytes(relabelling.total_bytes) + " instead of " + in_bytes(relabelling.given_total_bytes);
}

std::string explain(const Plan& plan, int64_t columns) {
  std::string text =
      wrapped(to_string(plan.from) + "  ->  " +
                  (plan.from.mesh() == plan.to.mesh() ? "" : to_string(plan.to.mesh()) + ": ") +
                  placements_text(plan.to),
              columns);
  if (plan.relabelling) text += wrapped(to_string(*plan.relabelling), columns);
  if (plan.steps.empty()) return text + "nothing to do: the layouts are the same\n";
  const bool is_estimate = gives_estimates(plan.topology);
  text +=
      wrapped(std::to_string(plan.steps.size()) + (plan.steps.size() == 1 ? " step, " : " steps, ") +
                  cost_in_us(plan.cost_us, is_estimate) + "; the busiest rank sends " + in_bytes(plan.bytes) +
                  ", all ranks " + in_bytes(plan.total_bytes) + "; peak memory " + in_bytes(plan.peak_bytes),
              columns);
  if (plan.in_two_levels) {
    text += wrapped("in two levels: through memory inside a host; " + in_bytes(plan.crossing_bytes) +
                        (plan.crossing_bytes == 0 ? " cross" : " in all cross") + " between hosts",
                    columns);
  }
  text += "\n" + steps_table(plan, columns) + "\n";
  for (const Alternative& lost : plan.alternatives) {
    text += wrapped(lost.name + ": " + cost_in_us(lost.cost_us, is_estimate) + ", " + lost.reason, columns);
    text += "    " + shortened(lost.text, static_cast<size_t>(std::max<int64_t>(columns - 4, 0))) + "\n";
  }
  text +=
      wrapped("priced by the " + plan.topology + " topology among " + std::to_string(plan.layouts_searched) +
                  " layouts; steps between them that were priced: " + std::to_string(plan.steps_priced),
              columns);
  if (std::any_of(plan.steps.begin(), plan.steps.end(),
                  [](const Step& step) { return step.is_extrapolated; }))
    text += wrapped(kBeyondWhatWasMeasured, columns);
  return is_estimate ? text + wrapped(kHowToMeasure, columns) : text;
}

}  // namespace shardway
