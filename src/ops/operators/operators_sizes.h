// Sizes that may be symbols.
#pragma once

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <string>
#include <vector>

#include "ops/operators/operators.h"
#include "shardway/group.h"

namespace shardway::operators {

// This rank in a group.
struct SizePlace {
  size_t rank = 0;
  size_t ranks = 1;
};

inline SizePlace place_in(std::string_view group) {
  const Group members = Group::named(std::string(group));
  return {.rank = static_cast<size_t>(members.rank()), .ranks = static_cast<size_t>(members.size())};
}

inline c10::SymInt total(SymSizes sizes) {
  c10::SymInt sum = 0;
  for (const c10::SymInt& size : sizes) sum = sum + size;
  return sum;
}

// The sizes given, or those that torch.chunk gives.
inline std::vector<c10::SymInt> sizes_or_chunks(const at::Tensor& x, OptionalSymSizes sizes, int64_t dim,
                                                const SizePlace& place) {
  if (sizes) return sizes->vec();
  const c10::SymInt length = x.sym_size(at::maybe_wrap_dim(dim, x.dim()));
  const auto ranks = static_cast<int64_t>(place.ranks);
  const c10::SymInt chunk = (length + (ranks - 1)) / ranks;
  std::vector<c10::SymInt> chunks;
  c10::SymInt left = length;
  for (size_t rank = 0; rank < place.ranks; ++rank) {
    chunks.push_back(chunk.min(left));
    left = left - chunks.back();
  }
  return chunks;
}

}  // namespace shardway::operators
