// What a rank says in front of a list of tensors, as numbers one after the other, and how it is read: once,
// on a copy, against the bytes that are there. No torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "terms/collective.h"
#include "terms/kinds.h"

namespace shardway::wire {

struct TensorRecord {
  int64_t dtype = 0;
  bool requires_grad = false;
  int64_t dim = 0;                  // counted from the front
  std::vector<int64_t> shape = {};  // on this rank
  std::vector<int64_t> sizes = {};  // every rank's along dim; empty where they were not given

  bool operator==(const TensorRecord&) const = default;
};

struct ListRecord {
  Collective collective = Collective::all_gather_v;
  int64_t op = 0;
  int64_t grad = 0;
  std::vector<TensorRecord> tensors = {};
  std::string problem = {};  // why the arguments cannot be; then the tensors do not count

  bool operator==(const ListRecord&) const = default;
};

// Bytes that are no listing.
class NoListing : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Everything in the bytes is aligned to this, for elements of any dtype.
inline constexpr int64_t kListAlignment = 16;

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kListAlignment - 1) / kListAlignment * kListAlignment;
}

// Of aligned length.
std::vector<std::byte> written(const ListRecord& listing);

// The beginning of a listing, which says how long it is.
inline constexpr int64_t kListingStart = 2 * sizeof(int64_t);

// How many of the bytes a listing takes whose beginning this is. Throws NoListing.
int64_t listing_bytes(std::span<const std::byte> start, int64_t bytes);

// The listing that takes all of these bytes, of one of so many ranks. Throws NoListing.
ListRecord read_listing(std::span<const std::byte> bytes, int64_t ranks, const Kinds& kinds);

}  // namespace shardway::wire
