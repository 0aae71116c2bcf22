#include "ops/call/list_exchange.h"

#include <ATen/ATen.h>

#include <numeric>

#include "ops/call/arguments.h"
#include "ops/call/start.h"

namespace shardway {
namespace {

at::Tensor parcel_for_all(const Listing& listing, const ListedTensors& xs, const Group& group, Told told) {
  Parcel parcel(xs, group);
  if (told == Told::by_listing) parcel.add(encoded(listing));
  for (size_t i = 0; i < xs.size() && listing.problem.empty(); ++i) parcel.add(xs[i].detach());
  return parcel.joined();
}

// Of every rank's parcel, where no listing travels.
Sizes parcel_bytes(const Listing& own, const Group& group) {
  Sizes bytes;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    int64_t& total = bytes.emplace_back(0);
    for (const ListedTensor& tensor : as_on(own, rank).tensors) {
      const auto element_bytes = static_cast<int64_t>(c10::elementSize(tensor.dtype));
      total += aligned(Box::whole(tensor.shape).volume() * element_bytes);
    }
  }
  return bytes;
}

// The part of a tensor that rank `to` is to have.
at::Tensor part_for(int64_t to, const at::Tensor& x, const ListedTensor& listed) {
  const auto size = listed.sizes.begin() + to;
  return x.detach().narrow(listed.dim, std::accumulate(listed.sizes.begin(), size, int64_t{0}), *size);
}

// A parcel per rank, one behind the other; only a listing where there is a problem.
Ragged parcels_for_each(const Listing& listing, const ListedTensors& xs, const Group& group, Told told) {
  Parcel all(xs, group);
  Sizes sizes;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const int64_t begin = all.bytes();
    if (told == Told::by_listing) all.add(encoded(listing));
    for (size_t i = 0; i < xs.size() && listing.problem.empty(); ++i)
      all.add(part_for(rank, xs[i], listing.tensors[i]));
    sizes.push_back(all.bytes() - begin);
  }
  return {.tensor = all.joined(), .sizes = std::move(sizes)};
}

}  // namespace

Told told_by(const ListedTensors& xs, bool sizes_given, const Group& group) {
  const bool is_told = sizes_given && !xs.empty() && group.distributed() && is_on_device(xs[0], group) &&
                       !checks_every_call(xs[0], group);
  return is_told ? Told::by_caller : Told::by_listing;
}

ParcelExchange start_exchange(const Listing& listing, const ListedTensors& xs, const Group& group, Told told,
                              Progress progress, const std::optional<Forward>& backward_of) {
  ParcelCall call{.backward_of = backward_of};
  const bool is_known = told == Told::by_caller;
  if (is_known && !listing.problem.empty()) raise(name_of(listing.collective), listing.problem, group.rank());
  if (listing.collective == Collective::all_gather_v) {
    AllGatherOptions options{.group = group};
    if (is_known) options.sizes = parcel_bytes(listing, group);
    auto parcels = start_all_gather_v(parcel_for_all(listing, xs, group, told), options, progress, &call);
    return {std::move(parcels), call.number};
  }
  const Ragged sent = parcels_for_each(listing, xs, group, told);
  AllToAllOptions options{.group = group};
  // Every rank sends this one the same boxes.
  if (is_known) options.recv_sizes = Sizes(sent.sizes.size(), sent.sizes[static_cast<size_t>(group.rank())]);
  auto parcels = start_all_to_all_v(sent.tensor, sent.sizes, options, progress, &call);
  return {std::move(parcels), call.number};
}

std::vector<Opened> opened(const Ragged& parcels, const Listing& own, Told told) {
  return told == Told::by_caller ? opened_as(own, parcels) : opened(parcels);
}

}  // namespace shardway
