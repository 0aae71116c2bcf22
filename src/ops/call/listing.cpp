#include "ops/call/listing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"

namespace shardway {
namespace {

std::string shape_text(const Listing& listing, const ListedTensor& tensor) {
  const bool may_differ = listing.collective == Collective::all_gather_v;
  std::ostringstream text;
  text << '(';
  for (size_t d = 0; d < tensor.shape.size(); ++d) {
    text << (d == 0 ? "" : ", ");
    if (may_differ && static_cast<int64_t>(d) == tensor.dim) {
      text << '*';
    } else {
      text << tensor.shape[d];
    }
  }
  text << ')';
  return text.str();
}

std::string list_text(const Sizes& sizes) {
  std::ostringstream text;
  for (size_t i = 0; i < sizes.size(); ++i) text << (i == 0 ? "(" : ", ") << sizes[i];
  return sizes.empty() ? "none" : text.str() + ")";
}

std::span<const std::byte> bytes_in(const at::Tensor& cpu) {
  return {static_cast<const std::byte*>(cpu.const_data_ptr()), static_cast<size_t>(cpu.numel())};
}

Listing listing_of(const wire::ListRecord& told) {
  Listing listing{.collective = told.collective,
                  .op = static_cast<Op>(told.op),
                  .grad = static_cast<Grad>(told.grad),
                  .problem = told.problem};
  for (const wire::TensorRecord& tensor : told.tensors)
    listing.tensors.push_back({.dtype = static_cast<at::ScalarType>(tensor.dtype),
                               .requires_grad = tensor.requires_grad,
                               .dim = tensor.dim,
                               .shape = tensor.shape,
                               .sizes = tensor.sizes});
  return listing;
}

// A thing that all ranks must say alike.
struct ListPoint {
  std::string name;
  std::string text;
};

std::vector<ListPoint> points_of(const Listing& listing) {
  constexpr std::array kGrads = {"sum", "mean", "local"};
  std::vector<ListPoint> points = {{"the collective", name_of(listing.collective)},
                                   {"the number of tensors", std::to_string(listing.tensors.size())},
                                   {"op", name_of(listing.op)},
                                   {"grad", kGrads.at(static_cast<size_t>(listing.grad))}};
  for (size_t i = 0; i < listing.tensors.size(); ++i) {
    const ListedTensor& tensor = listing.tensors[i];
    const std::string of = c10::str(" of x[", i, "]");
    points.push_back({"dtype" + of, dtype_name(tensor.dtype)});
    points.push_back({"number of dims" + of, std::to_string(tensor.shape.size())});
    points.push_back({"dim" + of, std::to_string(tensor.dim)});
    points.push_back({"shape" + of, shape_text(listing, tensor)});
    points.push_back({"sizes" + of, list_text(tensor.sizes)});
  }
  return points;
}

// Whether the points have the same text, without making it.
bool are_alike(const Listing& a, const Listing& b) {
  if (a.collective != b.collective || a.tensors.size() != b.tensors.size() || a.op != b.op ||
      a.grad != b.grad)
    return false;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const ListedTensor& one = a.tensors[i];
    ListedTensor other = b.tensors[i];
    other.requires_grad = one.requires_grad;
    const bool may_differ =
        a.collective == Collective::all_gather_v && one.shape.size() == other.shape.size();
    if (may_differ) {
      const auto d = static_cast<size_t>(one.dim);
      other.shape[d] = one.shape[d];
    }
    if (!(one == other)) return false;
  }
  return true;
}

}  // namespace

Listing as_on(const Listing& own, int64_t rank) {
  Listing other = own;
  if (own.collective != Collective::all_gather_v) return other;  // every rank brings the whole
  for (ListedTensor& tensor : other.tensors)
    tensor.shape[static_cast<size_t>(tensor.dim)] = tensor.sizes[static_cast<size_t>(rank)];
  return other;
}

at::Tensor encoded(const Listing& listing) {
  wire::ListRecord told{.collective = listing.collective,
                        .op = static_cast<int64_t>(listing.op),
                        .grad = static_cast<int64_t>(listing.grad),
                        .problem = listing.problem};
  for (const ListedTensor& tensor : listing.tensors)
    told.tensors.push_back({.dtype = static_cast<int64_t>(tensor.dtype),
                            .requires_grad = tensor.requires_grad,
                            .dim = tensor.dim,
                            .shape = tensor.shape,
                            .sizes = tensor.sizes});
  const std::vector<std::byte> bytes = wire::written(told);
  at::Tensor result = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
  return result;
}

Decoded decoded(const at::Tensor& bytes, int64_t rank, int64_t ranks) {
  try {
    const at::Tensor start = bytes.narrow(0, 0, std::min(bytes.numel(), wire::kListingStart)).cpu();
    const int64_t taken = wire::listing_bytes(bytes_in(start), bytes.numel());
    const at::Tensor told = bytes.narrow(0, 0, taken).cpu();
    return {.listing = listing_of(wire::read_listing(bytes_in(told), ranks, kinds_of_torch())),
            .bytes = taken};
  } catch (const wire::NoListing& error) {
    TORCH_CHECK_VALUE(false, "rank ", rank, " sent no list of tensors: ", error.what());
  }
}

void compare(const std::vector<Listing>& listings) {
  for (size_t rank = 0; rank < listings.size(); ++rank) {
    const Listing& listing = listings[rank];
    if (!listing.problem.empty())
      raise(name_of(listing.collective), listing.problem, static_cast<int64_t>(rank));
  }
  for (size_t rank = 1; rank < listings.size(); ++rank) {
    if (are_alike(listings[0], listings[rank])) continue;
    const std::vector<ListPoint> first = points_of(listings[0]);
    const std::vector<ListPoint> other = points_of(listings[rank]);
    for (size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
      TORCH_CHECK_VALUE(first[i].text == other[i].text, name_of(listings[0].collective),
                        ": ranks disagree on ", first[i].name, ": ", first[i].text, " on rank 0, ",
                        other[i].text, " on rank ", rank);
    }
  }
}

}  // namespace shardway
