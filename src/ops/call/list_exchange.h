// What each rank has of a list for the others, sent as one run of bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/call/launch.h"
#include "ops/call/listing.h"
#include "ops/call/parcel.h"
#include "shardway/collectives.h"

namespace shardway {

using ListedTensors = std::vector<at::Tensor>;

// What the ranks know of one another's lists: what the listings say, or all that the caller has told each,
// and then no listing travels.
enum class Told : uint8_t { by_listing, by_caller };

// The same on every rank. On a device, to hear of the others the host would have to wait.
Told told_by(const std::vector<at::Tensor>& xs, bool sizes_given, const Group& group);

// Parcels under way, and the number of the call; see Forward.
struct ParcelExchange {
  Async<Ragged> parcels;
  uint64_t number = 0;
};

// Collective. Where a listing travels its problem does; otherwise it is thrown here, as a c10::ValueError.
ParcelExchange start_exchange(const Listing& listing, const std::vector<at::Tensor>& xs, const Group& group,
                              Told told, Progress progress, const std::optional<Forward>& backward_of);

// What came; see opened in parcel.h.
std::vector<Opened> opened(const Ragged& parcels, const Listing& own, Told told);

}  // namespace shardway
