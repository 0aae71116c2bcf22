// What a rank says in front of a list of tensors that travel as one run of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/call/header.h"
#include "terms/listing.h"

namespace shardway {

struct ListedTensor {
  at::ScalarType dtype = at::kFloat;
  bool requires_grad = false;
  int64_t dim = 0;   // counted from the front
  Sizes shape = {};  // on this rank
  Sizes sizes = {};  // every rank's along dim; empty where they were not given

  bool operator==(const ListedTensor&) const = default;
};

struct Listing {
  Collective collective = Collective::all_gather_v;
  Op op = Op::sum;
  Grad grad = Grad::sum;
  std::vector<ListedTensor> tensors = {};
  std::string problem = {};  // why the arguments cannot be; then the tensors do not count
};

using wire::aligned;
using wire::kListAlignment;

// What another rank must be saying, of tensors whose sizes are all known.
Listing as_on(const Listing& own, int64_t rank);

// 1-d bytes on the CPU, of aligned length.
at::Tensor encoded(const Listing& listing);

struct Decoded {
  Listing listing;
  int64_t bytes = 0;  // that it took
};

// The listing at the beginning of 1-d bytes of any device, which this one of so many ranks sent. Throws
// c10::ValueError where there is none.
Decoded decoded(const at::Tensor& bytes, int64_t rank, int64_t ranks);

// Throws c10::ValueError, the same on every rank, when a rank has a problem or two disagree. By rank.
void compare(const std::vector<Listing>& listings);

}  // namespace shardway
