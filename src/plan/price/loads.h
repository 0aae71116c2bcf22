// What every rank sends and receives in a direct exchange between two states, by link level.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/price/network.h"
#include "plan/price/overlaps_by_block.h"
#include "plan/price/state_space.h"

namespace shardway {

// Counts of elements and peers, [kind][level]. A kind is one rank, numbered as in the network, or several
// ranks with the same loads.
struct Loads {
  size_t levels = 0;
  std::vector<int64_t> ranks = {};  // [kind]
  std::vector<double> sent = {};
  std::vector<double> received = {};
  std::vector<int32_t> sent_to = {};
  std::vector<int32_t> received_from = {};
  std::vector<double> copied = {};    // [kind]: elements that a rank takes from itself
  std::vector<double> combined = {};  // [kind]: addends that a rank reads, its own among them

  size_t kinds() const { return ranks.size(); }
  void reset(size_t kinds, size_t level_count);
};

// A direct exchange from one state to another. The two may belong to different state spaces. Addends along
// the mesh dims of `resolved` are combined.
struct StateExchange {
  const StateSpace& senders;
  size_t from;
  const StateSpace& receivers;
  size_t to;
  DimMask resolved;
};

// Pair by pair: for any meshes and hosts. `loads` is only written; reusing it saves allocations.
void count_pairs(const StateExchange& exchange, const Network& network, Loads& loads);

// Ring by ring, without looking at pairs. Needs one mesh whose hosts lie in blocks. The overlap of two boxes
// is the product of their overlaps along each tensor dim, and so is its sum over a block of ranks. Kinds come
// in the order of their first ranks.
void count_rings(const StateExchange& exchange, const Network& network, OverlapsByBlock& overlaps,
                 Loads& loads);

}  // namespace shardway
