#include "plan/geometry/assignment.h"

#include <algorithm>
#include <limits>

namespace shardway {
namespace {

constexpr Worth kEndless = {std::numeric_limits<int64_t>::max(), 0};
constexpr size_t kNone = std::numeric_limits<size_t>::max();

// The Hungarian method with prices, a row at a time.
//
// A row loses -worth by taking a column. Invariant: loss(row, column) >= wage(row) + price(column), with
// equality where the row has the column, and the price of a column that nobody has is zero. Then no other
// assignment of these rows loses less. A new row enters by the shortest chain of rows that move on to another
// column, where a chain is as long as its losses exceed wages and prices.
//
// Example: worths {5, 4}, {5, 1}. Row 0 takes column 0. Row 1 enters: the chain "row 1 takes column 0, row 0
// moves on to column 1" gives up 1, "row 1 takes column 1" gives up 4, so the first is taken: 4 + 5.
class Assignment {
 public:
  explicit Assignment(const WorthTable& worths)
      : worths_(worths),
        wages_(worths.rows()),
        prices_(worths.columns()),
        row_of_(worths.columns(), kNone),
        reached_from_(worths.columns()),
        distances_(worths.columns()),
        is_settled_(worths.columns()) {}

  void enter(size_t row) {
    const size_t last = shortest_chain_from(row);
    move_on_along_chain(row, last);
  }

  std::vector<size_t> columns() const {
    std::vector<size_t> column_of(worths_.rows());
    for (size_t column = 0; column < row_of_.size(); ++column) {
      if (row_of_[column] != kNone) column_of[row_of_[column]] = column;
    }
    return column_of;
  }

 private:
  Worth excess(size_t row, size_t column) const {
    return Worth{} - worths_.at(row, column) - wages_[row] - prices_[column];
  }

  // Settles columns by their distance until it finds one that nobody has. Changes wages and prices so that
  // the chain to that column exceeds them nowhere.
  size_t shortest_chain_from(size_t row) {
    std::fill(distances_.begin(), distances_.end(), kEndless);
    std::fill(reached_from_.begin(), reached_from_.end(), kNone);
    std::fill(is_settled_.begin(), is_settled_.end(), false);
    size_t at_row = row;
    size_t at_column = kNone;
    Worth reached = {};
    while (true) {
      size_t nearest = kNone;
      for (size_t column = 0; column < distances_.size(); ++column) {
        if (is_settled_[column]) continue;
        const Worth distance = reached + excess(at_row, column);
        if (distance < distances_[column]) {
          distances_[column] = distance;
          reached_from_[column] = at_column;
        }
        if (nearest == kNone || distances_[column] < distances_[nearest]) nearest = column;
      }
      reached = distances_[nearest];
      if (row_of_[nearest] == kNone) {
        raise_wages(row, reached);
        return nearest;
      }
      is_settled_[nearest] = true;
      at_column = nearest;
      at_row = row_of_[nearest];
    }
  }

  void raise_wages(size_t entering, const Worth& length) {
    wages_[entering] = wages_[entering] + length;
    for (size_t column = 0; column < row_of_.size(); ++column) {
      if (!is_settled_[column]) continue;
      const Worth by = length - distances_[column];
      wages_[row_of_[column]] = wages_[row_of_[column]] + by;
      prices_[column] = prices_[column] - by;
    }
  }

  void move_on_along_chain(size_t entering, size_t last) {
    for (size_t column = last; column != kNone; column = reached_from_[column]) {
      const size_t before = reached_from_[column];
      row_of_[column] = before == kNone ? entering : row_of_[before];
    }
  }

  const WorthTable& worths_;
  std::vector<Worth> wages_;   // by row
  std::vector<Worth> prices_;  // by column
  std::vector<size_t> row_of_;
  std::vector<size_t> reached_from_;  // the column before, in the chain to a column
  std::vector<Worth> distances_;
  std::vector<bool> is_settled_;
};

}  // namespace

std::vector<size_t> best_assignment(const WorthTable& worths) {
  Assignment assignment(worths);
  for (size_t row = 0; row < worths.rows(); ++row) assignment.enter(row);
  return assignment.columns();
}

}  // namespace shardway
