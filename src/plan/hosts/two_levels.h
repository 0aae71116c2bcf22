// A route between ranks of several hosts in two levels: what moves inside a host and what crosses between
// hosts.
//
// A box that several ranks of a host pull crosses to that host once: each of these ranks receives a piece of
// it and takes the other pieces from the others. Boxes that meet on the same elements of one rank's output
// are combined by the ranks that push them, a piece each, before they cross. A sum that a rank needs twice,
// to send and to keep, it makes once.
//
// Example, a gather among hosts {0, 1} and {2, 3}, the row of rank 0:
//   copies    rank 0 sends the first half to rank 2 and the second to rank 3
//   handover  ranks 2 and 3 swap their halves
//   home      rank 1 takes the row from rank 0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/hosts/host_map.h"
#include "shardway/route.h"

namespace shardway {

// A route as the ranks of one host know it of one another.
struct ToldRoute {
  Route route = {};
  bool has_contiguous_input = false;
  bool has_contiguous_output = false;
};

// A box of a tensor, row by row, in 1-d memory.
struct BoxRun {
  Box box = {};
  int64_t offset = 0;

  bool operator==(const BoxRun&) const = default;
};

// A part of the output and what is combined in it, in this order: one operand per host.
struct HostOperand {
  enum class Memory : uint8_t { landed, home_sums, crossed_sums };
  Memory memory = Memory::landed;
  BoxRun run = {};

  bool operator==(const HostOperand&) const = default;
};
struct HostSum {
  Box box = {};
  std::vector<HostOperand> operands = {};

  bool operator==(const HostSum&) const = default;
};

// One rank's part. All memories but the input and the output of `home` are 1-d.
struct TwoLevels {
  // What others read of the input: the input itself, flattened, or these runs, packed.
  bool stages_input = false;
  std::vector<BoxRun> staged = {};
  int64_t staged_elements = 0;

  // Where copies from other hosts land: the output itself, flattened, or these runs.
  bool lands_aside = false;
  std::vector<BoxRun> landed = {};
  int64_t landed_elements = 0;

  Route copies = {};                    // between hosts: staged → landed
  Route sums = {};                      // inside the host: staged → sums that cross, then sums that stay
  Route crossing = {};                  // between hosts: sums → crossed sums
  Route home = {};                      // inside the host: input → output
  Route handover = {};                  // inside the host: landed → landed
  std::vector<HostSum> host_sums = {};  // if the output combines several pulls

  // Whether any rank of the host moves something on these routes; the same on all of them.
  bool has_sums = false;
  bool has_home = false;
  bool has_handover = false;

  bool operator==(const TwoLevels&) const = default;
};

// `told` has the routes of the ranks of this rank's host, by place. Throws std::invalid_argument if two of
// them do not mean the same moves between their ranks.
TwoLevels two_levels_of(const HostMap& hosts, int64_t rank, const std::vector<ToldRoute>& told,
                        int64_t element_bytes);

// The parts of all ranks of a host, by place.
std::vector<TwoLevels> two_levels_of_host(const HostMap& hosts, int64_t host,
                                          const std::vector<ToldRoute>& told, int64_t element_bytes);

}  // namespace shardway
