// A layout as a drawing: the tensor cut into cells, each with the ranks that hold it.
#include <algorithm>
#include <set>

#include "plan/geometry/number_text.h"
#include "shardway/plan.h"

namespace shardway {
namespace {

constexpr int64_t kMostRows = 32;
constexpr int64_t kMostRanks = 4096;

// The one or two tensor dims that are drawn: those that are split, else the last ones.
std::vector<size_t> drawn_dims(const Layout& layout) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < layout.shape().size() && dims.size() < 2; ++d) {
    if (!layout.order()[d].empty()) dims.push_back(d);
  }
  for (size_t d = layout.shape().size(); d-- > 0 && dims.size() < 2;) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) dims.push_back(d);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

struct Drawing {
  std::vector<int64_t> row_cuts = {};
  std::vector<int64_t> column_cuts = {};
  std::vector<std::vector<std::string>> cells = {};
};

std::vector<int64_t> cuts_along(const std::vector<Box>& boxes, size_t dim, int64_t length) {
  std::set<int64_t> cuts{0, length};
  for (const Box& box : boxes) {
    cuts.insert(box.offset[dim]);
    cuts.insert(box.offset[dim] + box.extent[dim]);
  }
  return {cuts.begin(), cuts.end()};
}

bool covers(const Box& box, size_t dim, int64_t begin, int64_t end) {
  return box.volume() > 0 && box.offset[dim] <= begin && end <= box.offset[dim] + box.extent[dim];
}

Drawing drawing_of(const Layout& layout, const std::vector<size_t>& dims) {
  std::vector<Box> boxes;
  for (int64_t p = 0; p < layout.mesh().size(); ++p) boxes.push_back(layout.box_at(p));
  const size_t down = dims.size() == 2 ? dims[0] : SIZE_MAX;
  const size_t across = dims.back();
  Drawing drawing;
  drawing.row_cuts =
      down == SIZE_MAX ? std::vector<int64_t>{0, 1} : cuts_along(boxes, down, layout.shape()[down]);
  drawing.column_cuts = cuts_along(boxes, across, layout.shape()[across]);
  for (size_t i = 0; i + 1 < drawing.row_cuts.size(); ++i) {
    std::vector<std::string> row;
    for (size_t j = 0; j + 1 < drawing.column_cuts.size(); ++j) {
      std::vector<int64_t> ranks;
      for (size_t p = 0; p < boxes.size(); ++p) {
        const bool is_in_row =
            down == SIZE_MAX || covers(boxes[p], down, drawing.row_cuts[i], drawing.row_cuts[i + 1]);
        if (is_in_row && covers(boxes[p], across, drawing.column_cuts[j], drawing.column_cuts[j + 1])) {
          ranks.push_back(layout.mesh().ranks()[p]);
        }
      }
      std::sort(ranks.begin(), ranks.end());
      row.push_back(ranks.empty() ? "-" : ranges_of(ranks));
    }
    drawing.cells.push_back(std::move(row));
  }
  return drawing;
}

std::string padded(const std::string& text, size_t width) {
  if (text.size() > width) return text.substr(0, width - 1) + "~";
  const size_t left = (width - text.size()) / 2;
  return std::string(left, ' ') + text + std::string(width - text.size() - left, ' ');
}

std::string render(const Drawing& drawing, bool has_rows, int64_t columns) {
  const size_t count = drawing.cells.front().size();
  std::string labels_probe = has_rows ? std::to_string(drawing.row_cuts.back()) : "";
  const size_t label = labels_probe.size() + 1;
  size_t width = 3;
  for (const auto& row : drawing.cells) {
    for (const std::string& cell : row) width = std::max(width, cell.size() + 2);
  }
  for (const int64_t cut : drawing.column_cuts) width = std::max(width, std::to_string(cut).size() + 1);
  const size_t room = static_cast<size_t>(std::max<int64_t>(columns, 20)) - label - 1;
  const size_t shown = std::max<size_t>(1, std::min(count, room / 4));
  width = std::max<size_t>(3, std::min(width, room / shown - 1));

  std::string rule(label, ' ');
  std::string head(label, ' ');
  for (size_t j = 0; j < shown; ++j) {
    rule += "+" + std::string(width, '-');
    std::string cut = std::to_string(drawing.column_cuts[j]);
    cut.resize(width + 1, ' ');
    head += cut;
  }
  rule += shown < count ? "+ …\n" : "+\n";
  std::string text = head + (shown < count ? "" : std::to_string(drawing.column_cuts.back())) + "\n" + rule;
  for (size_t i = 0; i < drawing.cells.size(); ++i) {
    if (static_cast<int64_t>(i) == kMostRows) {
      return text + std::string(label, ' ') + "… " + std::to_string(drawing.cells.size() - i) +
             " more rows\n";
    }
    const std::string begin = has_rows ? std::to_string(drawing.row_cuts[i]) : "";
    std::string line = std::string(label - 1 - begin.size(), ' ') + begin + " ";
    for (size_t j = 0; j < shown; ++j) line.append("|").append(padded(drawing.cells[i][j], width));
    text.append(line).append(shown < count ? "| …\n" : "|\n").append(rule);
  }
  return text;
}

}  // namespace

std::string draw(const Layout& layout, int64_t columns) {
  std::string text = to_string(layout) + "\n";
  if (layout.ndim() == 0) return text + "a scalar on every rank\n";
  if (layout.mesh().size() > kMostRanks) {
    return text + std::to_string(layout.mesh().size()) + " ranks are too many to draw\n";
  }
  const std::vector<size_t> dims = drawn_dims(layout);
  text += dims.size() == 2
              ? "dim " + std::to_string(dims[0]) + " down, dim " + std::to_string(dims[1]) + " across"
              : "dim " + std::to_string(dims[0]) + " across";
  const bool holds_addends = std::any_of(layout.placements().begin(), layout.placements().end(),
                                         [](const Placement& placement) { return placement.is_partial(); });
  text += holds_addends ? "; in each cell the ranks that hold it or an addend\n"
                        : "; in each cell the ranks that hold it\n";
  text += render(drawing_of(layout, dims), dims.size() == 2, columns);
  std::vector<int64_t> idle;
  for (int64_t p = 0; p < layout.mesh().size(); ++p) {
    if (layout.box_at(p).volume() == 0) idle.push_back(layout.mesh().ranks()[static_cast<size_t>(p)]);
  }
  std::sort(idle.begin(), idle.end());
  return idle.empty()
             ? text
             : text + "nothing on " + (idle.size() == 1 ? "rank " : "ranks ") + ranges_of(idle) + "\n";
}

}  // namespace shardway
