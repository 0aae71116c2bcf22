#include "plan/hosts/parcels.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/hosts/carriers.h"

namespace shardway {
namespace {

// A message costs an engine as much as some tens of KiB: a run is not cut into smaller pieces than this. The
// ranks of a host share its cable, so that pieces save no time on the wire. A sum is made by whoever sends
// it.
constexpr int64_t kLeastPieceBytes = 64 << 10;

// The part `inner` of a box, where `inner` counts from the corner of the box.
Box part_of(const Box& box, const Box& inner) {
  Box part{.offset = box.offset, .extent = inner.extent};
  for (size_t d = 0; d < part.offset.size(); ++d) {
    if (part.offset[d] != kUnknownOffset) part.offset[d] += inner.offset[d];
  }
  return part;
}

template <class Items>
std::vector<int64_t> distinct_ranks(const Items& items) {
  std::vector<int64_t> ranks;
  for (const auto& item : items) ranks.push_back(item.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

bool is_known(const Box& box) {
  return std::all_of(box.offset.begin(), box.offset.end(), [](int64_t n) { return n != kUnknownOffset; });
}

void for_each_receiver(const std::vector<HostMove>& moves,
                       const std::function<void(std::span<const HostMove> to_one)>& body) {
  for (auto first = moves.begin(); first != moves.end();) {
    const auto last =
        std::find_if(first, moves.end(), [&](const HostMove& move) { return move.to != first->to; });
    body({first, last});
    first = last;
  }
}

std::vector<Parcel> landed_parts(std::span<const HostMove> moves) {
  std::vector<Parcel> parts;
  if (moves.empty()) return parts;
  Route landing{.output_shape = std::vector<int64_t>(moves[0].output.extent.size())};
  std::vector<std::pair<std::pair<size_t, Dims>, Parcel>> ordered;
  for (size_t i = 0; i < moves.size(); ++i) {
    const HostMove& move = moves[i];
    if (is_known(move.output)) {
      landing.pulls.push_back({.peer = static_cast<int64_t>(i), .mine = move.output});
    } else if (move.input.volume() > 0) {  // an all-to-all: nothing else lands there
      ordered.push_back({{i, Dims(move.input.extent.size())},
                         {.owners = {{move.from, move.input}}, .wants = {{move.to, move.output}}}});
    }
  }
  for (const Landing& part : landings(landing)) {
    Parcel parcel{.wants = {{moves[0].to, part.box}}};
    for (const Addend& addend : part.addends) {
      const HostMove& move = moves[static_cast<size_t>(landing.pulls[static_cast<size_t>(addend.pull)].peer)];
      parcel.owners.push_back({move.from, part_of(move.input, addend.from)});
    }
    const Addend& first = part.addends.front();
    const auto index = static_cast<size_t>(landing.pulls[static_cast<size_t>(first.pull)].peer);
    ordered.emplace_back(std::pair(index, first.from.offset), std::move(parcel));
  }
  std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& entry : ordered) parts.push_back(std::move(entry.second));
  return parts;
}

std::vector<Parcel> parcels_of(const std::vector<HostMove>& moves) {
  std::vector<Parcel> parcels;
  std::map<std::pair<int64_t, std::pair<Dims, Dims>>, size_t> copies;  // by owner and box
  const auto add = [&](Parcel part) {
    const Owner& owner = part.owners.front();
    if (!part.is_sum() && is_known(owner.box)) {
      const auto key = std::pair(owner.rank, std::pair(owner.box.offset, owner.box.extent));
      const auto [entry, is_new] = copies.try_emplace(key, parcels.size());
      if (!is_new) {
        parcels[entry->second].wants.push_back(std::move(part.wants.front()));
        return;
      }
    }
    parcels.push_back(std::move(part));
  };
  for_each_receiver(moves, [&](std::span<const HostMove> to_one) {
    for (Parcel& part : landed_parts(to_one)) add(std::move(part));
  });
  return parcels;
}

Cargo cargo_of(std::vector<Parcel> parcels) {
  Cargo cargo{.parcels = std::move(parcels)};
  for (const Parcel& parcel : cargo.parcels) cargo.elements += parcel.elements();
  return cargo;
}

std::vector<ParcelPiece> pieces_of(const Cargo& cargo, size_t number, int64_t element_bytes) {
  const Parcel& parcel = cargo.parcels[number];
  const std::vector<int64_t> senders = distinct_ranks(parcel.owners);
  const std::vector<int64_t> receivers = distinct_ranks(parcel.wants);
  const int64_t elements = parcel.elements();
  const int64_t least = parcel.is_sum() ? kLeastCarriedBytes : kLeastPieceBytes;
  const auto cuts = [&](const std::vector<int64_t>& ranks) {
    const auto count = static_cast<int64_t>(ranks.size());
    const int64_t shares =
        cargo.elements == 0 ? 0 : (2 * elements * count + cargo.elements) / (2 * cargo.elements);
    return std::clamp<int64_t>(std::min(shares, elements * element_bytes / least), 1, count);
  };
  const int64_t out = cuts(senders);
  const int64_t in = cuts(receivers);
  const auto nth = [number](const std::vector<int64_t>& ranks, int64_t n) {
    return ranks[(static_cast<size_t>(n) + number) % ranks.size()];
  };
  std::vector<ParcelPiece> pieces;
  for (int64_t s = 0; s < out; ++s) {
    for (int64_t r = 0; r < in; ++r) {
      const int64_t begin = std::max(elements * s / out, elements * r / in);
      const int64_t end = std::min(elements * (s + 1) / out, elements * (r + 1) / in);
      if (begin < end)
        pieces.push_back({.from = nth(senders, s), .to = nth(receivers, r), .begin = begin, .end = end});
    }
  }
  return pieces;
}

}  // namespace shardway
