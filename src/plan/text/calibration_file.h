// Topology files that say how their figures were measured.
#pragma once

#include <string>
#include <vector>

#include "plan/calibration/calibration.h"

namespace shardway {

// A file with all that it says. Runs on one machine are put together in it: each has another number of ranks
// and a table of its own.
struct TopologyFile {
  Topology topology = {};
  std::vector<Calibration> runs = {};  // the newest first; its figures are the topology's. None: not measured
};

// The whole file: docs/topology.md has the schema. They throw std::invalid_argument naming file and field if
// it is invalid.
[[gnu::visibility("default")]] std::string to_json(const TopologyFile& file);
[[gnu::visibility("default")]] TopologyFile topology_file_from_json(const std::string& text,
                                                                    const std::string& name);
[[gnu::visibility("default")]] TopologyFile read_topology_file(const std::string& path);

// Of the file that SHARDWAY_TOPOLOGY names, and of none if it is not set: as default_topology. It is read
// again only when it has changed.
[[gnu::visibility("default")]] TopologyFile default_topology_file();

// What was measured of the choices of shared memory in groups of so many ranks, by a run of this file on this
// processor.
MeasuredChoices choices_in(const TopologyFile& file, const std::string& processor, int64_t ranks);

// Why a new run cannot join those of a file, as one sentence without a full stop; empty if it can. The
// machine and what moves the bytes have to be the same.
[[gnu::visibility("default")]] std::string objection_to_joining(const TopologyFile& file,
                                                                const Calibration& run);

// The file with a new run, in the place of one with as many ranks. What it says of hosts stays.
[[gnu::visibility("default")]] TopologyFile joined(const TopologyFile& file, const MeasuredTopology& run);

// For people: the figures, the errors of each kind, and what speaks against them.
[[gnu::visibility("default")]] std::string report_of(const MeasuredTopology& measured);

// What a plan is priced for.
struct PricedUse {
  std::string processor = {};
  int64_t cores = 0;
  int64_t ranks = 0;  // of one host; 0: not known yet
};

// Of so many ranks, how many the fullest host has.
[[gnu::visibility("default")]] int64_t most_ranks_on_a_host(const Topology& topology, int64_t ranks);

// Why figures of these runs may not hold for a use, as one sentence without a full stop: another processor,
// number of cores or number of ranks. Empty if nothing is known against them.
[[gnu::visibility("default")]] std::string doubt_about(const std::vector<Calibration>& runs,
                                                       const PricedUse& use);

}  // namespace shardway
