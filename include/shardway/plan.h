// The cheapest way from one layout to another, what it costs, and why.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardway/layout.h"
#include "shardway/topology.h"

namespace [[gnu::visibility("default")]] shardway {

// What a step does. `slice` communicates nothing; `exchange` is any other route: every rank pulls its box
// straight from the ranks that hold it.
enum class StepKind : uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  permute,
  slice,
  exchange
};

const char* name_of(StepKind kind);

// One stage of a plan.
struct Step {
  StepKind kind = StepKind::slice;
  std::vector<int64_t> mesh_dims = {};  // the mesh dims in which communicating ranks differ
  Layout from;
  Layout to;
  double cost_us = 0;
  double latency_us = 0;       // part of the cost: base and latencies of the busiest rank
  int64_t bytes = 0;           // sent by the rank that sends most
  int64_t total_bytes = 0;     // sent by all ranks
  int64_t peak_bytes = 0;      // on the worst rank: the plan's input, this step's input and output, staging
  int64_t crossing_bytes = 0;  // of the total, between hosts; counted in two levels only
};

// A plan that was considered and lost.
struct Alternative {
  std::string name = {};  // "direct exchange", "DTensor's order", "runner-up"
  std::string text = {};  // S0,R -all_gather-> R,R
  double cost_us = 0;
  double latency_us = 0;
  int64_t steps = 0;
  int64_t bytes = 0;
  int64_t peak_bytes = 0;
  std::string reason = {};
};

struct Plan {
  Layout from;
  Layout to;
  std::vector<Step> steps = {};
  double cost_us = 0;
  int64_t bytes = 0;  // the sum of the steps' bytes
  int64_t total_bytes = 0;
  int64_t peak_bytes = 0;
  bool in_two_levels = false;                  // the topology has two_levels, and the meshes several hosts
  int64_t crossing_bytes = 0;                  // the sum of the steps'
  std::string topology = {};                   // where its figures come from
  std::vector<Alternative> alternatives = {};  // the cheapest first
  int64_t layouts_searched = 0;                // layouts that the plan could have passed through
  int64_t steps_priced = 0;                    // of the steps between these layouts

  std::string text() const;  // S0,R -all_gather(tp)-> R,R
};

// Which prices and which steps a search uses. `shardway` is the library's own choice; `torch_2_13` searches
// the steps of DTensor's own planner at its prices; `seed_004` has prices only.
enum class Rules : uint8_t { shardway, torch_2_13, seed_004 };

Rules rules_from_name(const std::string& name);
const char* name_of(Rules rules);

struct PlanOptions {
  std::optional<Topology> topology = {};  // if left out: default_topology()
  std::optional<int64_t> max_bytes = {};  // no step may need more on any rank
  Rules rules = Rules::shardway;
};

// The cheapest plan; the same on every rank. Results are kept: asking again takes microseconds. Thread-safe.
// Throws std::invalid_argument if there is none, and says why.
std::shared_ptr<const Plan> plan(const Layout& from, const Layout& to, const PlanOptions& options = {});

// The priced steps along given layouts, from each straight to the next. Throws std::invalid_argument if a
// step would make addends, leaves the meshes of the two ends, or goes back to the first mesh.
std::vector<Step> steps_along(const std::vector<Layout>& layouts, const PlanOptions& options = {});

inline constexpr double kImpossible = std::numeric_limits<double>::infinity();

// The cost of the cheapest plan; kImpossible if addends would have to be made. Under `torch_2_13` and
// `seed_004` it is what their own redistribute_cost returns.
double redistribute_cost(const Layout& from, const Layout& to, const PlanOptions& options = {});

// The plan and the reasons for it, as text for a terminal of this many columns.
std::string explain(const Plan& plan, int64_t columns = 100);

std::string to_json(const Plan& plan);
Plan plan_from_json(const std::string& text);

// Boxes by rank as a drawing of at most two tensor dims, for a terminal.
std::string draw(const Layout& layout, int64_t columns = 80);

// Forgets the kept plans.
void clear_plans();

}  // namespace shardway
