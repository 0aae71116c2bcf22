#include "shm/calls/skewed_reduce_scatter.h"

#include <algorithm>

#include "shm/board/thresholds.h"

namespace shardway::shm {
namespace {

// The first dim that has at least one row per rank.
std::optional<size_t> shared_dim(const FixedDims& extent, int64_t size) {
  for (size_t d = 0; d < extent.size(); ++d) {
    if (extent[d] >= size) return d;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> heavy_rank(const Part& part, int64_t size) {
  if (!part.is_reduce_scatter || size < kLeastRanksToShare ||
      static_cast<int64_t>(part.pushes.size()) != size)
    return std::nullopt;
  int64_t total = 0;
  int64_t most = 0;
  int64_t heavy = 0;
  for (const Push& push : part.pushes) {
    const int64_t bytes = volume(push.extent) * part.element_bytes;
    total += bytes;
    if (bytes > most) {
      most = bytes;
      heavy = push.peer;
    }
  }
  if (most < kLeastSharedReduction || most < total / 8 * 7) return std::nullopt;
  return shared_dim(part.pushes[static_cast<size_t>(heavy)].extent, size) ? std::optional(heavy)
                                                                          : std::nullopt;
}

SkewedReduceScatter::SkewedReduceScatter(const Part& part, int64_t rank, int64_t size, int64_t heavy)
    : part_(part),
      rank_(rank),
      size_(size),
      heavy_(heavy),
      box_(part.pushes[static_cast<size_t>(heavy)]),
      dim_(*shared_dim(box_.extent, size)) {}

SkewedReduceScatter::Rows SkewedReduceScatter::rows_of(int64_t rank) const {
  const int64_t rows = box_.extent[dim_];
  const int64_t begin = rows / size_ * rank + std::min(rank, rows % size_);
  return {.begin = begin, .count = rows / size_ + (rank < rows % size_ ? 1 : 0)};
}

FixedDims SkewedReduceScatter::share_extent(int64_t rank) const {
  FixedDims extent = box_.extent;
  extent[dim_] = rows_of(rank).count;
  return extent;
}

FixedDims SkewedReduceScatter::share_offset(int64_t rank) const {
  FixedDims offset = FixedDims::zeros(box_.extent.size());
  offset[dim_] = rows_of(rank).begin;
  return offset;
}

bool SkewedReduceScatter::has_rest() const {
  return std::any_of(part_.pushes.begin(), part_.pushes.end(),
                     [&](const Push& push) { return push.peer != heavy_ && volume(push.extent) > 0; });
}

Part SkewedReduceScatter::rest() const {
  Part rest = part_;
  rest.pushes.erase_if([&](const Push& push) { return push.peer == heavy_; });
  if (rank_ == heavy_) {
    rest.pulls.clear();
    rest.landings.clear();
  }
  return rest;
}

int64_t SkewedReduceScatter::scratch_bytes() const {
  return rank_ == heavy_ ? 0 : volume(share_extent(rank_)) * part_.element_bytes;
}

Part SkewedReduceScatter::share(std::byte* scratch) const {
  const FixedDims extent = share_extent(rank_);
  const FixedDims zeros = FixedDims::zeros(extent.size());
  Part share{.element_bytes = part_.element_bytes, .input = part_.input};
  share.combine = part_.combine;
  share.output = scratch;
  share.output_strides = packed_strides(extent, part_.element_bytes);
  if (rank_ == heavy_) {
    share.output = part_.output + offset_bytes(share_offset(rank_), part_.output_strides);
    share.output_strides = part_.output_strides;
  }
  share.landings.push_back({.to = zeros, .extent = extent, .addends = {}});
  for (int64_t peer = 0; peer < size_; ++peer) {
    Pull pull{.peer = peer, .from = box_.from, .to = zeros, .extent = extent};
    pull.from[dim_] += rows_of(rank_).begin;
    if (peer == rank_) pull.here = &part_.input;
    share.pulls.push_back(pull);
    share.landings[0].addends.push_back({.pull = peer, .from = zeros});
    Push push{.peer = peer, .from = box_.from, .extent = share_extent(peer)};
    push.from[dim_] += rows_of(peer).begin;
    share.pushes.push_back(push);
  }
  return share;
}

Part SkewedReduceScatter::collection(const std::byte* scratch) const {
  Part part{
      .element_bytes = part_.element_bytes, .output = part_.output, .output_strides = part_.output_strides};
  const FixedDims zeros = FixedDims::zeros(box_.extent.size());
  part.input.shape = zeros;
  part.input.strides = zeros;
  if (rank_ != heavy_) {
    const FixedDims extent = share_extent(rank_);
    part.input = {.data = scratch, .shape = extent, .strides = packed_strides(extent, part_.element_bytes)};
    part.pushes.push_back({.peer = heavy_, .from = zeros, .extent = extent});
    return part;
  }
  for (int64_t peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    part.pulls.push_back(
        {.peer = peer, .from = zeros, .to = share_offset(peer), .extent = share_extent(peer)});
  }
  return part;
}

}  // namespace shardway::shm
