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

}  // namespace shardway
