// The assignment problem: each row gets a column of its own, so that the worth of all together is greatest.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardway {

// What it is worth that a row gets a column. Bytes count first, then rows that keep what they were given.
struct Worth {
  int64_t bytes = 0;
  int64_t kept = 0;

  Worth operator+(const Worth& other) const { return {bytes + other.bytes, kept + other.kept}; }
  Worth operator-(const Worth& other) const { return {bytes - other.bytes, kept - other.kept}; }
  auto operator<=>(const Worth&) const = default;
};

// A value for each row and column, row by row.
class WorthTable {
 public:
  WorthTable(size_t rows, size_t columns) : columns_(columns), values_(rows * columns) {}

  size_t rows() const { return columns_ == 0 ? 0 : values_.size() / columns_; }
  size_t columns() const { return columns_; }
  Worth& at(size_t row, size_t column) { return values_[row * columns_ + column]; }
  const Worth& at(size_t row, size_t column) const { return values_[row * columns_ + column]; }

 private:
  size_t columns_;
  std::vector<Worth> values_;
};

// The column of each row in an assignment of greatest worth. There are at least as many columns as rows.
// Takes time proportional to rows² · columns.
std::vector<size_t> best_assignment(const WorthTable& worths);

}  // namespace shardway
