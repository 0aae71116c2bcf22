#include "transport/common/packing.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "transport/common/boxes.h"

namespace shardway {
namespace {

// The bits of a tensor, viewed as a dtype that every copying kernel supports.
at::Tensor plain(const at::Tensor& t) {
  switch (t.element_size()) {
    case 1:
      return t.view(at::kByte);
    case 2:
      return t.view(at::kShort);
    case 4:
      return t.view(at::kInt);
    case 8:
      return t.view(at::kLong);
    default:
      return t;
  }
}

std::vector<at::Tensor> plain(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  result.reserve(tensors.size());
  for (const at::Tensor& t : tensors) result.push_back(plain(t));
  return result;
}

}  // namespace

std::optional<int64_t> split_dim(const Moves& moves, const std::vector<int64_t>& shape) {
  if (moves.empty()) return std::nullopt;
  size_t dim = 0;
  while (dim + 1 < shape.size() && moves[0].mine.extent[dim] == shape[dim]) ++dim;
  if (moves[0].mine == Box::whole(shape)) dim = 0;
  int64_t next = 0;
  for (const Move& move : moves) {
    Box expected = Box::whole(shape);
    if (!shape.empty()) {
      expected.offset[dim] = next;
      expected.extent[dim] = move.mine.extent[dim];
      next += move.mine.extent[dim];
    }
    if (!(move.mine == expected)) return std::nullopt;
  }
  const bool is_all = shape.empty() ? moves.size() == 1 : next == shape[dim];
  return is_all ? std::optional(static_cast<int64_t>(dim)) : std::nullopt;
}

bool lies_in_order(const at::Tensor& t, const Moves& moves) {
  if (!t.is_contiguous()) return false;
  if (moves.empty()) return t.numel() == 0;
  const auto dim = split_dim(moves, t.sizes().vec());
  return dim && std::all_of(t.sizes().begin(), t.sizes().begin() + *dim, [](int64_t n) { return n == 1; });
}

int64_t volume_of(const Moves& moves) {
  int64_t volume = 0;
  for (const Move& move : moves) volume += move.mine.volume();
  return volume;
}

at::Tensor packed(const at::Tensor& x, const Moves& moves) {
  at::Tensor run = at::empty({volume_of(moves)}, x.options());
  const std::vector<at::Tensor> parts = plain(parts_of(run, moves));
  const at::Tensor from = plain(x);
  const auto dim = split_dim(moves, x.sizes().vec());
  // torch's kernel treats any dense tensor as contiguous.
  if (!dim || parts.size() == 1 || !x.is_contiguous()) {
    for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(view_of(from, moves[i].mine));
    return run;
  }
  std::vector<int64_t> extents;
  for (const at::Tensor& part : parts) extents.push_back(part.size(*dim));
  at::split_with_sizes_copy_out(parts, from, extents, *dim);
  return run;
}

std::vector<at::Tensor> parts_of(const at::Tensor& run, const Moves& moves) {
  std::vector<at::Tensor> parts;
  parts.reserve(moves.size());
  int64_t offset = 0;
  for (const Move& move : moves) {
    const int64_t volume = move.mine.volume();
    parts.push_back(run.narrow(0, offset, volume).view(move.mine.extent));
    offset += volume;
  }
  return parts;
}

void unpack(const at::Tensor& run, const Moves& moves, const at::Tensor& out) {
  const std::vector<at::Tensor> parts = parts_of(run, moves);
  if (const auto dim = split_dim(moves, out.sizes().vec())) return join_into(out, parts, *dim);
  for (size_t i = 0; i < parts.size(); ++i) view_of(out, moves[i].mine).copy_(parts[i]);
}

void join_into(const at::Tensor& out, const std::vector<at::Tensor>& parts, int64_t dim) {
  at::Tensor to = plain(out);
  at::cat_out(to, plain(parts), dim);
}

}  // namespace shardway
