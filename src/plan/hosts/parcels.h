// What crosses from one host to another, and who carries which part of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "shardway/route.h"

namespace shardway {

// A move as seen from neither end. A box that its teller does not know has kUnknownOffset in it.
struct HostMove {
  int64_t from = 0;
  int64_t to = 0;
  Box input = {};
  Box output = {};
};

// Whether the teller of the box knows where it lies.
bool is_known(const Box& box);

struct Owner {
  int64_t rank = 0;
  Box box = {};  // in its input
};
struct Want {
  int64_t rank = 0;
  Box box = {};  // in its output
};

// What crosses from one host to another as one run: a box, or the combination of several. A box may be wanted
// by several ranks.
struct Parcel {
  std::vector<Owner> owners = {};
  std::vector<Want> wants = {};

  int64_t elements() const { return owners.front().box.volume(); }
  bool is_sum() const { return owners.size() > 1; }
};

// Calls `body` with the moves to each receiver. `moves` are ordered by receiver.
void for_each_receiver(const std::vector<HostMove>& moves,
                       const std::function<void(std::span<const HostMove> to_one)>& body);

// The parts of one rank's output on which the same of these moves land. Both ends of the moves find the same
// order: that of the first move on a part, then the place in it.
std::vector<Parcel> landed_parts(std::span<const HostMove> moves);

// What crosses between two hosts, in the same order at both ends. `moves` are ordered by receiver, then by
// sender.
std::vector<Parcel> parcels_of(const std::vector<HostMove>& moves);

// A part of a parcel: elements [begin, end) of its run.
struct ParcelPiece {
  int64_t from = 0;
  int64_t to = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// All that crosses from one host to another.
struct Cargo {
  std::vector<Parcel> parcels = {};
  int64_t elements = 0;
};
Cargo cargo_of(std::vector<Parcel> parcels);

// Cuts the run of a parcel among the ranks that send it and among those that receive it, if it is more than a
// rank's share of the cargo. Other runs stay whole, since each piece is a message, and go to one rank after
// another.
std::vector<ParcelPiece> pieces_of(const Cargo& cargo, size_t number, int64_t element_bytes);

}  // namespace shardway
