// What every rank sends and receives in a direct exchange between two states, by link level.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/price/network.h"
#include "plan/price/overlaps_by_block.h"
#include "plan/price/state_space.h"

namespace shardway {

// Counts of elements and peers, [kind][level]. A kind is one rank, as the network numbers them, or several
// with the same loads.
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

// A direct exchange: from a state of one state space to one of another or the same; the addends of `resolved`
// mesh dims are combined.
struct StateExchange {
  const StateSpace& senders;
  size_t from;
  const StateSpace& receivers;
  size_t to;
  DimMask resolved;
};

// Pair by pair: for any meshes and hosts. `loads` is only written; reusing it saves allocations.
void count_pairs(const StateExchange& exchange, const Network& network, Loads& loads);

// Ring by ring, without looking at pairs: on one mesh whose hosts lie in blocks. Overlaps of boxes are
// products of overlaps along each tensor dim, and so are their sums over a block of ranks. Kinds come in the
// order of their first ranks.
void count_rings(const StateExchange& exchange, const Network& network, OverlapsByBlock& overlaps,
                 Loads& loads);

}  // namespace shardway
