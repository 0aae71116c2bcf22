#include "plan/price/overlaps_by_block.h"

#include <algorithm>

#include "plan/geometry/cuts.h"

namespace shardway {
namespace {

struct Amount {
  double elements = 0;
  double parts = 0;

  Amount& operator+=(Amount other) {
    elements += other.elements;
    parts += other.parts;
    return *this;
  }
};

Amount operator*(Amount amount, double times) { return {amount.elements * times, amount.parts * times}; }

using Cuts = std::vector<Cut>;
using Coordinate = std::array<int64_t, kMostMeshDims>;

// How many coordinates of each cut a block holds.
using Spans = std::array<int64_t, kMostMeshDims>;

// The indices of a cut that count.
struct Range {
  int64_t first = 0;
  int64_t last = 0;
};
using Ranges = std::array<Range, kMostMeshDims>;

// How much of `wanted` the parts hold whose indices count, and how many of them hold any.
class PartOverlap {
 public:
  PartOverlap(const Cuts& cuts, const Ranges& ranges, Interval wanted)
      : cuts_(cuts), ranges_(ranges), wanted_(wanted) {}

  Amount within(Interval whole, size_t depth = 0) const {
    const Interval overlap = common(whole, wanted_);
    if (overlap.length() == 0) return {};
    if (depth == cuts_.size()) return {static_cast<double>(overlap.length()), 1};
    const Cut& cut = cuts_[depth];
    const Range range = ranges_[depth];
    if (!cut.bounds.empty()) return one_by_one(whole, depth, range);
    // Parts of one length that lie wholly in `wanted` hold the same amount, so one stands for all of them.
    const int64_t step = (whole.length() + cut.parts - 1) / cut.parts;
    const int64_t first = std::max(range.first, (overlap.begin - whole.begin) / step);
    const int64_t last = std::min(range.last, (overlap.end - 1 - whole.begin) / step);
    const int64_t first_inner = std::max(first, (overlap.begin - whole.begin + step - 1) / step);
    const int64_t last_inner = std::min(last, (overlap.end - whole.begin) / step - 1);
    if (last_inner - first_inner < 1) return one_by_one(whole, depth, {first, last});
    Amount amount =
        within(cut.part(whole, first_inner), depth + 1) * static_cast<double>(last_inner - first_inner + 1);
    amount += one_by_one(whole, depth, {first, first_inner - 1});
    amount += one_by_one(whole, depth, {last_inner + 1, last});
    return amount;
  }

 private:
  Amount one_by_one(Interval whole, size_t depth, Range range) const {
    Amount amount;
    for (int64_t i = range.first; i <= range.last; ++i)
      amount += within(cuts_[depth].part(whole, i), depth + 1);
    return amount;
  }

  const Cuts& cuts_;
  const Ranges& ranges_;
  Interval wanted_;
};

DimMask dims_of(const Cuts& cuts) {
  DimMask dims = 0;
  for (const Cut& cut : cuts) dims |= 1U << static_cast<size_t>(cut.mesh_dim);
  return dims;
}

Interval interval_at(int64_t length, const Cuts& cuts, const Coordinate& coordinate) {
  Interval interval{0, length};
  for (const Cut& cut : cuts) interval = cut.part(interval, coordinate[static_cast<size_t>(cut.mesh_dim)]);
  return interval;
}

// A number that says which mesh dims cut a tensor dim, in which order, and whether one is ragged.
uint64_t code_of(const ShardState& state, size_t tensor_dim) {
  uint64_t code = 0;
  for (size_t m = 0; m < kMostMeshDims; ++m) {
    const ShardState::Role& role = state.roles[m];
    if (role.tensor_dim != static_cast<int8_t>(tensor_dim)) continue;
    code |= (m + 1) << (4U * role.place);
    if (role.ragged >= 0) code |= static_cast<uint64_t>(role.ragged + 1) << (4 * kMostMeshDims);
  }
  return code;
}

// The rows of one tensor dim in an exchange, for all coordinates along the mesh dims that cut it.
class OverlapRows {
 public:
  OverlapRows(const StateSpace& space, const Network& network, const Cuts& before, const Cuts& after,
              int64_t length, std::vector<double>& rows)
      : space_(space), network_(network), before_(before), after_(after), length_(length), rows_(rows) {
    const DimMask dims = dims_of(before) | dims_of(after);
    for (size_t m = space.mesh_dims(); m-- > 0;) {
      if (!has(dims, m)) continue;
      strides_[m] = count_;
      count_ *= size_along(m);
      cutting_.push_back(m);
    }
    columns_ = DimOverlaps::column(network.rings().size(), DimOverlaps::pulled) + 1;
    rows_.resize(count_ * columns_);
    Coordinate coordinate = {};
    for (size_t row = 0; row < count_; ++row, advance(coordinate)) {
      held_.push_back(interval_at(length_, before_, coordinate));
      wanted_.push_back(interval_at(length_, after_, coordinate));
    }
  }

  void fill(DimMask varying) {
    fill(DimOverlaps::pulled, wanted_, dims_of(after_), before_, varying);
    fill(DimOverlaps::pushed, held_, dims_of(before_), after_, varying);
    for (size_t row = 0; row < count_; ++row)
      at(row, columns_ - 1) = static_cast<double>(common(held_[row], wanted_[row]).length());
  }

  // Keeps only the first of coordinates that are alike.
  DimOverlaps without_repetition() const {
    DimOverlaps overlaps{.columns = columns_};
    std::vector<size_t> kept{0};  // rows
    size_t stride = 1;
    for (const size_t m : cutting_) {
      std::vector<size_t> firsts = find_alike(m, overlaps.places[m]);
      if (firsts.size() == 1) overlaps.places[m].clear();
      overlaps.strides[m] = stride;
      stride *= firsts.size();
      std::vector<size_t> more;
      for (const size_t first : firsts) {
        for (const size_t row : kept) more.push_back(first * strides_[m] + row);
      }
      kept = std::move(more);
    }
    for (const size_t row : kept)
      overlaps.rows.insert(overlaps.rows.end(), &rows_[row * columns_], &rows_[row * columns_] + columns_);
    return overlaps;
  }

 private:
  size_t size_along(size_t m) const { return static_cast<size_t>(space_.mesh_shape()[m]); }
  double& at(size_t row, size_t column) { return rows_[row * columns_ + column]; }

  void advance(Coordinate& coordinate) const {
    for (const size_t m : cutting_) {
      if (++coordinate[m] < space_.mesh_shape()[m]) return;
      coordinate[m] = 0;
    }
  }

  void fill(DimOverlaps::Column column, const std::vector<Interval>& mine, DimMask dims, const Cuts& theirs,
            DimMask varying) {
    Spans before = {};
    for (size_t ring = 0; ring < network_.rings().size(); ++ring) {
      Spans spans = {};
      for (size_t i = 0; i < theirs.size(); ++i) {
        const auto m = static_cast<size_t>(theirs[i].mesh_dim);
        spans[i] = has(varying, m) ? space_.coordinates_in_block(network_.rings()[ring].block, m) : 1;
      }
      const size_t here = DimOverlaps::column(ring, column);
      if (ring > 0 && spans == before) {
        copy(DimOverlaps::column(ring - 1, column), here);
      } else {
        fill(here, mine, dims, theirs, spans);
      }
      before = spans;
    }
  }

  void copy(size_t from, size_t to) {
    for (size_t row = 0; row < count_; ++row) {
      at(row, to) = at(row, from);
      at(row, to + 1) = at(row, from + 1);
    }
  }

  // What the interval of each row has in common with the parts of the block around it. The block spans
  // `spans` coordinates along the cuts. Rows have the same overlap if they agree on the dims that cut the
  // interval, and on those along which the block does not span everything.
  void fill(size_t column, const std::vector<Interval>& mine, DimMask dims, const Cuts& theirs,
            const Spans& spans) {
    for (size_t i = 0; i < theirs.size(); ++i) {
      if (spans[i] < theirs[i].parts) dims |= 1U << static_cast<size_t>(theirs[i].mesh_dim);
    }
    Ranges ranges;
    Coordinate coordinate = {};
    for (size_t row = 0; row < count_; ++row, advance(coordinate)) {
      size_t first = row;
      for (const size_t m : cutting_) {
        if (!has(dims, m)) first -= static_cast<size_t>(coordinate[m]) * strides_[m];
      }
      if (first != row) {
        at(row, column) = at(first, column);
        at(row, column + 1) = at(first, column + 1);
        continue;
      }
      for (size_t i = 0; i < theirs.size(); ++i) {
        const int64_t own = coordinate[static_cast<size_t>(theirs[i].mesh_dim)];
        ranges[i] = {own - own % spans[i], own - own % spans[i] + spans[i] - 1};
      }
      const Amount amount = PartOverlap(theirs, ranges, mine[row]).within({0, length_});
      at(row, column) = amount.elements;
      at(row, column + 1) = amount.parts;
    }
  }

  // Sorts the coordinates along a mesh dim into kinds that are alike. Returns the first of each kind;
  // `places` gets the kind of every coordinate.
  std::vector<size_t> find_alike(size_t m, std::vector<size_t>& places) const {
    std::vector<size_t> firsts;
    for (size_t coordinate = 0; coordinate < size_along(m); ++coordinate) {
      const auto known = std::find_if(firsts.begin(), firsts.end(),
                                      [&](size_t first) { return are_equal(m, first, coordinate); });
      places.push_back(static_cast<size_t>(known - firsts.begin()));
      if (known == firsts.end()) firsts.push_back(coordinate);
    }
    return firsts;
  }

  // Whether no row changes when one coordinate along a mesh dim takes the place of the other.
  bool are_equal(size_t m, size_t a, size_t b) const {
    const size_t run = strides_[m] * columns_;
    const size_t period = run * size_along(m);
    for (size_t begin = 0; begin < count_ * columns_; begin += period) {
      const double* rows = rows_.data() + begin;
      if (!std::equal(rows + a * run, rows + (a + 1) * run, rows + b * run)) return false;
    }
    return true;
  }

  const StateSpace& space_;
  const Network& network_;
  const Cuts& before_;
  const Cuts& after_;
  int64_t length_;
  std::vector<double>& rows_;     // [row][column]
  std::vector<Interval> held_;    // [row]
  std::vector<Interval> wanted_;  // [row]
  size_t count_ = 1;
  size_t columns_ = 0;
  std::vector<size_t> cutting_;                     // mesh dims, the innermost first
  std::array<size_t, kMostMeshDims> strides_ = {};  // of rows
};

}  // namespace

const DimOverlaps& OverlapsByBlock::along(const StateSpace& space, size_t from, size_t to, DimMask varying,
                                          size_t tensor_dim) {
  DimMask cutting_after = 0;
  for (size_t m = 0; m < space.mesh_dims(); ++m) {
    if (space.state(to).roles[m].tensor_dim == static_cast<int8_t>(tensor_dim)) cutting_after |= 1U << m;
  }
  const Key key{tensor_dim, code_of(space.state(from), tensor_dim), code_of(space.state(to), tensor_dim),
                varying & cutting_after};
  const auto [entry, is_new] = known_.try_emplace(key);
  if (is_new) {
    const Cuts before = space.cuts_of(from, tensor_dim);
    const Cuts after = space.cuts_of(to, tensor_dim);
    OverlapRows rows(space, network_, before, after, space.shape()[tensor_dim], all_rows_);
    rows.fill(varying);
    entry->second = rows.without_repetition();
  }
  return entry->second;
}

}  // namespace shardway
