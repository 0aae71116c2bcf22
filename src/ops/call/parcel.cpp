#include "ops/call/parcel.h"

#include <ATen/ATen.h>

#include "ops/call/arguments.h"
#include "transport/common/boxes.h"

namespace shardway {
namespace {

at::Device device_for(const std::vector<at::Tensor>& xs, const Group& group) {
  const bool can_be_there = !xs.empty() && xs[0].defined() && !group.transport().refuses(xs[0].device());
  return can_be_there ? xs[0].device() : at::Device(at::kCPU);
}

}  // namespace

Parcel::Parcel(const std::vector<at::Tensor>& xs, const Group& group) : device_(device_for(xs, group)) {}

void Parcel::add(const at::Tensor& t) {
  const at::Tensor there = materialized(t).contiguous().to(device_, t.scalar_type(), /*non_blocking=*/true);
  const at::Tensor bytes = bytes_of(there);
  pieces_.push_back(bytes);
  const int64_t rest = aligned(bytes.numel()) - bytes.numel();
  if (rest > 0 && !padding_.defined()) padding_ = at::zeros({kListAlignment}, bytes.options());
  if (rest > 0) pieces_.push_back(padding_.narrow(0, 0, rest));
  bytes_ += aligned(bytes.numel());
}

at::Tensor Parcel::joined() const { return at::cat(pieces_); }

Opened::Opened(at::Tensor bytes, int64_t rank, int64_t ranks) : bytes_(std::move(bytes)) {
  Decoded found = decoded(bytes_, rank, ranks);
  listing_ = std::move(found.listing);
  at_ = found.bytes;
}

at::Tensor Opened::next(at::ScalarType dtype, const Sizes& shape) {
  const int64_t bytes = Box::whole(shape).volume() * static_cast<int64_t>(c10::elementSize(dtype));
  if (bytes == 0) return at::empty(shape, bytes_.options().dtype(dtype));
  TORCH_CHECK_VALUE(bytes <= bytes_.numel() - at_, "a rank sent fewer bytes than its list of tensors has");
  at::Tensor taken = bytes_.narrow(0, at_, bytes).view(dtype).view(shape);
  at_ += aligned(bytes);
  return taken;
}

std::vector<Opened> opened(const Ragged& parcels) {
  std::vector<Opened> all;
  std::vector<Listing> listings;
  int64_t offset = 0;
  for (size_t rank = 0; rank < parcels.sizes.size(); ++rank) {
    all.emplace_back(parcels.tensor.narrow(0, offset, parcels.sizes[rank]), static_cast<int64_t>(rank),
                     static_cast<int64_t>(parcels.sizes.size()));
    listings.push_back(all.back().listing());
    offset += parcels.sizes[rank];
  }
  compare(listings);
  return all;
}

std::vector<Opened> opened_as(const Listing& own, const Ragged& parcels) {
  std::vector<Opened> all;
  int64_t offset = 0;
  for (size_t rank = 0; rank < parcels.sizes.size(); ++rank) {
    all.emplace_back(parcels.tensor.narrow(0, offset, parcels.sizes[rank]),
                     as_on(own, static_cast<int64_t>(rank)));
    offset += parcels.sizes[rank];
  }
  return all;
}

}  // namespace shardway
