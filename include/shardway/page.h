// A plan as a page for a browser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shardway/plan.h"

namespace [[gnu::visibility("default")]] shardway {

struct PageOptions {
  // What the plan was priced with, for the time of each rank. If left out, the default topology is tried.
  // Times are not shown if they do not give the plan's own cost.
  std::optional<Topology> topology = {};
  std::optional<int64_t> max_bytes = {};  // the limit that memory is drawn against
  std::string measured_svg = {};          // a picture of the calls that gave the prices; empty: none
};

// One self-contained HTML file: the tensor's boxes before and after, every step as boxes that move between
// ranks, bytes and time by rank, memory, the plans that lost, and the picture of the prices. Above 64 ranks
// it shows groups of ranks.
std::string to_html(const Plan& plan, const PageOptions& options = {});

}  // namespace shardway
