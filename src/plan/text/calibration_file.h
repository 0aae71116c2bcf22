// Topology files that say how their figures were measured.
#pragma once

#include <optional>
#include <string>

#include "plan/price/calibration.h"

namespace shardway {

// The whole file: docs/topology.md has the schema.
[[gnu::visibility("default")]] std::string to_json(const Topology& topology, const Calibration& calibration);

// How the figures of a topology file were measured; nothing if it does not say. Throws std::invalid_argument
// if the file is no topology.
[[gnu::visibility("default")]] std::optional<Calibration> read_calibration(const std::string& path);

// For people: the figures, the errors of each kind, and what speaks against them.
[[gnu::visibility("default")]] std::string report_of(const MeasuredTopology& measured);

// What a plan is priced for.
struct PricedUse {
  std::string processor = {};
  int64_t cores = 0;
  int64_t ranks = 0;  // 0: not known yet
};

// Why figures of this calibration may not hold for a use, as one sentence without a full stop: another
// processor, number of cores or number of ranks. Empty if nothing is known against them.
[[gnu::visibility("default")]] std::string doubt_about(const Calibration& calibration, const PricedUse& use);

}  // namespace shardway
