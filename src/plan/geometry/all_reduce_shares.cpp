#include "plan/geometry/all_reduce_shares.h"

namespace shardway {

AllReduceShares::AllReduceShares(const Dims& extent, int64_t members)
    : extent_(extent), volume_(Box::whole(extent).volume()), largest_(volume_) {
  if (volume_ == 0) return;
  for (size_t dim = 0; dim < extent.size(); ++dim) {
    const int64_t length = (extent[dim] + members - 1) / members;
    const int64_t largest = volume_ / extent[dim] * length;
    if (dim > 0 && largest >= largest_) continue;
    dim_ = dim;
    length_ = length;
    largest_ = largest;
  }
  holders_ = (volume_ + largest_ - 1) / largest_;
}

Box AllReduceShares::box_of(int64_t member) const {
  Box box = Box::whole(extent_);
  const int64_t begin = std::min(extent_[dim_], length_ * member);
  box.offset[dim_] = begin;
  box.extent[dim_] = std::min(length_, extent_[dim_] - begin);
  return box;
}

AllReduceRoutes all_reduce_routes(const Layout& layout, const std::vector<int64_t>& dims, int64_t rank) {
  const std::vector<int64_t> nothing(layout.shape().size(), 0);
  AllReduceRoutes routes{.combination = {.rank = rank, .input_shape = nothing, .output_shape = nothing},
                         .collection = {.rank = rank, .input_shape = nothing, .output_shape = nothing},
                         .landing = Box::whole(nothing)};
  const auto position = layout.mesh().position_of(rank);
  if (!position) return routes;

  const std::vector<int64_t> extent = layout.box_at(*position).extent;
  const Mesh members = layout.mesh().submesh(dims, rank);
  const AllReduceShares shares(extent, members.size());
  routes.landing = shares.box_of(*members.position_of(rank));
  const Box own = Box::whole(routes.landing.extent);
  Route& scatter = routes.combination;
  Route& gather = routes.collection;
  for (int64_t i = 0; i < members.size(); ++i) {
    const int64_t peer = members.ranks()[static_cast<size_t>(i)];
    const Box share = shares.box_of(i);
    const Box theirs = Box::whole(share.extent);
    if (own.volume() > 0) scatter.pulls.push_back({.peer = peer, .mine = own, .theirs = routes.landing});
    if (theirs.volume() > 0) scatter.pushes.push_back({.peer = peer, .mine = share, .theirs = theirs});
    if (peer == rank) continue;
    if (theirs.volume() > 0) gather.pulls.push_back({.peer = peer, .mine = share, .theirs = theirs});
    if (own.volume() > 0) gather.pushes.push_back({.peer = peer, .mine = own, .theirs = routes.landing});
  }
  scatter.input_shape = extent;
  scatter.output_shape = own.extent;
  gather.input_shape = own.extent;
  gather.output_shape = extent;
  return routes;
}

}  // namespace shardway
