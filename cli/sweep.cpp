#include "cli/sweep.h"

#include <algorithm>
#include <stdexcept>

#include "plan/geometry/cost_text.h"
#include "plan/geometry/number_text.h"
#include "plan/text/json.h"

namespace shardway::cli {
namespace {

Layout with_length(const Layout& layout, int64_t dim, int64_t length) {
  std::vector<int64_t> shape = layout.shape();
  shape[static_cast<size_t>(dim)] = length;
  return {shape, layout.dtype(), layout.mesh(), layout.placements(), layout.order()};
}

void refuse_ragged(const char* option, const Layout& layout, int64_t dim) {
  for (const Placement& placement : layout.placements()) {
    if (!placement.is_ragged() || placement.dim != dim) continue;
    throw std::invalid_argument("--sweep: dim " + std::to_string(dim) + " cannot be swept: the sizes of " +
                                to_string(placement) + " in " + option + " fit one length only");
  }
}

// Makes the row of one length.
class Sweeper {
 public:
  Sweeper(const Layout& from, const Layout& to, int64_t dim, const PlanOptions& options)
      : from_(from), to_(to), dim_(dim), options_(options) {}

  SweepRow row_at(int64_t length) const {
    const Layout from = with_length(from_, dim_, length);
    SweepRow row{.length = length,
                 .bytes = Box::whole(from.shape()).volume() * item_bytes(from.dtype()),
                 .cost_us = kImpossible,
                 .plan = "none"};
    try {
      const auto best = plan(from, with_length(to_, dim_, length), options_);
      row.cost_us = best->cost_us;
      row.plan = best->text();
    } catch (const std::invalid_argument&) {
      if (!options_.max_bytes) throw;  // else it may be impossible at this length alone
    }
    return row;
  }

  // By halving, finds the first row whose plan is not that of `left`. The plan of `right` is not.
  SweepRow change_between(const SweepRow& left, SweepRow right) const {
    int64_t same = left.length;
    while (right.length - same > 1) {
      SweepRow middle = row_at(same + (right.length - same) / 2);
      if (middle.plan == left.plan) {
        same = middle.length;
      } else {
        right = std::move(middle);
      }
    }
    return right;
  }

 private:
  const Layout& from_;
  const Layout& to_;
  int64_t dim_;
  const PlanOptions& options_;
};

std::string cost_of(const SweepRow& row, bool is_estimate) {
  return row.cost_us == kImpossible ? "-" : cost_text(row.cost_us, is_estimate);
}

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string shortened(const std::string& text, size_t columns) {
  const size_t width = std::max<size_t>(columns, 8);
  return text.size() <= width ? text : text.substr(0, width - 1) + "…";
}

}  // namespace

std::vector<SweepRow> sweep_plans(const Layout& from, const Layout& to, const Sweep& sweep,
                                  const PlanOptions& options) {
  if (sweep.dim >= from.ndim()) {
    throw std::invalid_argument("--sweep: dim " + std::to_string(sweep.dim) + " is not one of a " +
                                std::to_string(from.ndim()) + "-d tensor; its dims begin with 0");
  }
  refuse_ragged("--from", from, sweep.dim);
  refuse_ragged("--to", to, sweep.dim);
  const Sweeper sweeper(from, to, sweep.dim, options);
  std::vector<SweepRow> rows = {sweeper.row_at(sweep.first)};
  for (int64_t length = sweep.first; length < sweep.last;) {
    length = length > sweep.last / 2 ? sweep.last : length * 2;
    SweepRow row = sweeper.row_at(length);
    if (row.plan != rows.back().plan) {
      SweepRow change = sweeper.change_between(rows.back(), row);
      if (change.length != length) rows.push_back(std::move(change));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string sweep_heading(const Layout& from, const Layout& to, const Sweep& sweep) {
  return "the length of dim " + std::to_string(sweep.dim) + " varies: " + to_string(from) + "  ->  " +
         (from.mesh() == to.mesh() ? "" : to_string(to.mesh()) + ": ") + placements_text(to);
}

std::string sweep_text(const Layout& from, const Layout& to, const Sweep& sweep,
                       const std::vector<SweepRow>& rows, bool is_estimate, const Terminal& terminal) {
  constexpr size_t kFigure = 12;
  constexpr size_t kBeforePlan = 3 * kFigure + 2;
  const auto columns = static_cast<size_t>(terminal.columns);
  const std::string dim = "dim " + std::to_string(sweep.dim);
  std::string text = bold(terminal, shortened(sweep_heading(from, to, sweep), columns)) + "\n\n" +
                     right(dim, kFigure) + right("tensor", kFigure) +
                     right(is_estimate ? "est. us" : "us", kFigure) + "  best plan\n";
  std::string last_plan;
  for (const SweepRow& row : rows) {
    text += right(std::to_string(row.length), kFigure) + right(in_bytes(row.bytes), kFigure) +
            right(cost_of(row, is_estimate), kFigure);
    if (row.plan != last_plan) {
      text += "  " + bold(terminal, shortened(row.plan, columns - std::min(columns, kBeforePlan)));
    }
    text += '\n';
    last_plan = row.plan;
  }
  return text;
}

std::string sweep_json(const Sweep& sweep, const std::vector<SweepRow>& rows) {
  Json list = Json::array();
  for (const SweepRow& row : rows) {
    list.push_back({{"length", row.length},
                    {"bytes", row.bytes},
                    {"cost_us", row.cost_us == kImpossible ? Json() : Json(row.cost_us)},
                    {"plan", row.plan}});
  }
  return Json{{"version", 1}, {"dim", sweep.dim}, {"rows", list}}.dump(1);
}

}  // namespace shardway::cli
