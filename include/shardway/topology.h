// What it costs to move bytes between ranks: assumed, given by the user, or measured.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shardway/layout.h"

namespace [[gnu::visibility("default")]] shardway {

// A GiB is 2^30 bytes.
struct Link {
  double latency_us = 0.6;
  double gib_per_s = 87.7;

  bool operator==(const Link&) const = default;
};

// What calls of one kind took, by the bytes that a rank reads in them, its own memory included. Between two
// points the price is a straight line, below the first it is that of the first, and beyond the last it grows
// with the bytes.
struct PriceCurve {
  struct Point {
    double bytes = 0;
    double us = 0;

    bool operator==(const Point&) const = default;
  };

  std::vector<Point> points = {};  // bytes rise, us is above 0
  // Which bytes count where ranks read unequally: of the rank that reads most (1), the mean of all (0), or
  // something between.
  double busiest_share = 1;

  bool operator==(const PriceCurve&) const = default;
};

// The curves of one group of ranks, by the name of a kind of step: all_gather, reduce_scatter, all_reduce,
// all_to_all and permute; and exchange, of ranks that keep much of what they have, if that was measured.
struct PriceTable {
  int64_t ranks = 2;
  // Of all bytes of the exchanges that were measured, the share that stayed where it was.
  double kept_share = 1;
  // What a step of a redistribution costs more than the collective that it is like, whatever its size.
  double step_us = 0;
  std::map<std::string, PriceCurve> curves = {};

  bool operator==(const PriceTable&) const = default;
};
using PriceTables = std::vector<PriceTable>;

// Latency and bandwidth between two ranks, by link level: the host border where their hosts differ, else the
// outermost mesh dim in which they differ.
struct Topology {
  double base_us = 6.6;  // what a step costs before anything moves
  Link within_host = {};
  Link between_hosts = {.latency_us = 2.7, .gib_per_s = 87.7 * 0.22};
  std::map<std::string, Link> dims =
      {};                      // links of mesh dims inside a host, by name or number; else within_host
  int64_t ranks_per_host = 0;  // host of a rank: its number / ranks_per_host; 0: all on one host
  std::vector<int64_t> host_of_rank = {};  // the host of each rank; overrides ranks_per_host
  // Whether ranks of different hosts move CPU tensors in two levels: through memory inside a host, and
  // between hosts what several ranks of a host want, once. The ranks of a host then share the bandwidth of
  // `between_hosts`; `dims` are not given.
  bool two_levels = false;
  double copy_gib_per_s = 0;    // 0: copies inside a rank are not priced
  double reduce_gib_per_s = 0;  // 0: reductions are not priced
  // What was measured inside a host. Where all ranks of a plan are on one host and `dims` is empty, the table
  // whose ranks are nearest prices it in place of the figures above. Null: none.
  std::shared_ptr<const PriceTables> tables = nullptr;
  std::string source = "assumed";  // assumed, given, measured, or the file it was read from

  int64_t host_of(int64_t rank) const;
  const Link& link_of(const Mesh& mesh, int64_t dim) const;

  bool operator==(const Topology& other) const;  // compares the figures, not their source
};

// Throws std::invalid_argument naming the first field whose value is impossible.
void validate(const Topology& topology);

// Read and write the JSON that docs/topology.md describes. Throw std::invalid_argument naming file and field
// if it is invalid.
Topology read_topology(const std::string& path);
Topology topology_from_json(const std::string& text, const std::string& file = "topology");
std::string to_json(const Topology& topology);

// Returns the topology of the file that SHARDWAY_TOPOLOGY names. Without it, returns the assumed figures with
// LOCAL_WORLD_SIZE ranks per host or, if that is not set either, all ranks on one host.
Topology default_topology();

}  // namespace shardway
