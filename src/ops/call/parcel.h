// Several tensors as one run of bytes, mostly with a listing in front of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/call/listing.h"

namespace shardway {

// Bytes that are put together piece by piece, each aligned.
class Parcel {
 public:
  // On the device of the first tensor, if the group can move it from there.
  Parcel(const std::vector<at::Tensor>& xs, const Group& group);

  void add(const at::Tensor& t);
  int64_t bytes() const { return bytes_; }
  at::Tensor joined() const;

 private:
  at::Device device_;
  at::Tensor padding_ = {};  // zeros
  std::vector<at::Tensor> pieces_;
  int64_t bytes_ = 0;
};

// Takes the tensors out again, in the order in which they were added.
class Opened {
 public:
  Opened(at::Tensor bytes, int64_t rank, int64_t ranks);
  Opened(at::Tensor bytes, Listing listing) : bytes_(std::move(bytes)), listing_(std::move(listing)) {}

  const Listing& listing() const { return listing_; }
  at::Tensor next(at::ScalarType dtype, const Sizes& shape);  // a view of the bytes

 private:
  at::Tensor bytes_;
  Listing listing_;
  int64_t at_ = 0;
};

// What came from every rank. Throws c10::ValueError, the same on every rank, where they do not agree.
std::vector<Opened> opened(const Ragged& parcels);

// The same of parcels without a listing, from ranks that are known to bring what `own` says.
std::vector<Opened> opened_as(const Listing& own, const Ragged& parcels);

}  // namespace shardway
