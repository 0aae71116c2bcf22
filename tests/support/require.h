// What the checks of the contract are written in.
#pragma once

#include <ATen/ATen.h>

#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "dense_reference.h"
#include "exchange.h"
#include "shardway/group.h"
#include "shardway/route.h"

namespace shardway::testing {

inline void require(bool holds, const std::string& claim, const Group& group) {
  if (holds) return;
  throw std::runtime_error(claim + " (rank " + std::to_string(group.rank()) + " of " +
                           std::to_string(group.size()) + ")");
}

inline void require_same(const at::Tensor& actual, const at::Tensor& expected, const std::string& what,
                         const Group& group) {
  if (same_bits(actual, expected)) return;
  std::ostringstream text;
  text << what << ": ";
  if (actual.sizes() != expected.sizes()) {
    text << actual.sizes() << " where " << expected.sizes() << " was expected";
  } else {
    text << actual.flatten().slice(0, 0, 12) << " ... where " << expected.flatten().slice(0, 0, 12)
         << " ... was expected";
  }
  require(false, text.str(), group);
}

// Sizes per rank: 1, 3, 5 ...; or with a rank of zero rows.
inline std::vector<int64_t> ragged_sizes(int64_t ranks) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(2 * rank + 1);
  return sizes;
}
inline std::vector<int64_t> sizes_with_empty_ranks(int64_t ranks) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(rank % 2 == 0 ? rank + 2 : 0);
  return sizes;
}

inline int64_t total(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

inline int64_t begin_of(const std::vector<int64_t>& sizes, int64_t rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, int64_t{0});
}

inline std::vector<int64_t> with_size(std::vector<int64_t> shape, int64_t dim, int64_t size) {
  shape[static_cast<size_t>(dim)] = size;
  return shape;
}

struct How {
  at::ScalarType dtype = at::kFloat;
  Memory input = Memory::contiguous;
  Memory output = Memory::contiguous;
  uint64_t seed = 1;
};

// Runs a route on the inputs of all ranks and compares bit for bit: the output with `expected`, the
// input with what it was.
inline void require_result(const Group& group, const Route& route, const at::Tensor& mine,
                           const at::Tensor& before, const at::Tensor& expected, const How& how) {
  const at::Tensor x = in_memory(how.input, mine);
  const at::Tensor out = in_memory(how.output, before);
  execute(route, x, out, group);
  require_same(out, expected, "the output", group);
  require_same(x, mine, "the input, which must not change", group);
}

// Runs an exchange over the group and compares with the dense reference.
inline void require_exchange(const Group& group, const Exchange& exchange, const How& how = {}) {
  Tensors inputs;
  for (const auto& shape : exchange.input_shapes)
    inputs.push_back(random_numbers(shape, how.dtype, how.seed * 100 + inputs.size()));
  const auto rank = static_cast<size_t>(group.rank());
  const at::Tensor before =
      random_numbers(exchange.output_shapes[rank], how.dtype, how.seed * 100 + 50 + rank);
  const at::Tensor expected = after(exchange, group.rank(), inputs, before);
  require_result(group, route_of(exchange, group.rank()), inputs[rank], before, expected, how);
}

// An exchange in which every rank has tensors of these shapes.
inline Exchange alike(const Group& group, const std::vector<int64_t>& input,
                      const std::vector<int64_t>& output) {
  const auto ranks = static_cast<size_t>(group.size());
  Exchange exchange;
  exchange.input_shapes.assign(ranks, input);
  exchange.output_shapes.assign(ranks, output);
  return exchange;
}

inline void require_all_gather(const Group& group, const Split& split, const How& how = {}) {
  Tensors inputs;
  for (int64_t size : split.sizes) {
    inputs.push_back(
        random_bits(with_size(split.shape, split.dim, size), how.dtype, how.seed * 100 + inputs.size()));
  }
  const at::Tensor expected = at::cat(inputs, split.dim);
  require_result(group, all_gather_route(split, group.rank()), inputs[static_cast<size_t>(group.rank())],
                 random_bits(expected.sizes().vec(), how.dtype, 7), expected, how);
}

inline void require_reduce_scatter(const Group& group, const Split& split, Op op, const How& how = {}) {
  Tensors inputs;
  const auto whole = with_size(split.shape, split.dim, total(split.sizes));
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    inputs.push_back(random_numbers(whole, how.dtype, how.seed * 100 + static_cast<uint64_t>(rank)));
  }
  const auto rank = static_cast<size_t>(group.rank());
  const at::Tensor expected =
      folded(inputs, op).narrow(split.dim, begin_of(split.sizes, group.rank()), split.sizes[rank]);
  require_result(group, reduce_scatter_route(split, group.rank(), op), inputs[rank],
                 random_numbers(expected.sizes().vec(), how.dtype, 7), expected, how);
}

// Row i of every rank goes to row rows-1-i of the next: as many messages as rows.
inline Exchange reversed_rows(const Group& group, int64_t rows) {
  Exchange exchange = alike(group, {rows, 2}, {rows, 2});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    for (int64_t row = 0; row < rows; ++row) {
      exchange.transfers.push_back({.from = rank,
                                    .source = {{row, 0}, {1, 2}},
                                    .to = (rank + 1) % group.size(),
                                    .target = {{rows - 1 - row, 0}, {1, 2}}});
    }
  }
  return exchange;
}

}  // namespace shardway::testing
