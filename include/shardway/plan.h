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
  double latency_us = 0;         // part of the cost: base and latencies of the busiest rank
  int64_t bytes = 0;             // sent by the rank that sends most
  int64_t total_bytes = 0;       // sent by all ranks
  int64_t peak_bytes = 0;        // on the worst rank: the plan's input, this step's input and output, staging
  int64_t crossing_bytes = 0;    // of the total, between hosts; counted in two levels only
  bool is_extrapolated = false;  // its cost is beyond the sizes that were measured
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

// Lets the planner choose which rank stands where in a target's mesh.
struct Relabel {
  std::vector<int64_t> among = {};  // the ranks to choose from; by default those of the target's mesh

  bool operator==(const Relabel&) const = default;
};

// Which ranks were chosen for a target's mesh, and what that saved.
struct Relabelling {
  std::vector<int64_t> given_ranks = {};  // of the mesh, by position
  std::vector<int64_t> ranks = {};
  int64_t given_total_bytes = 0;  // sent by all ranks if the mesh stayed as it was given
  int64_t total_bytes = 0;

  int64_t saved_bytes() const { return given_total_bytes - total_bytes; }
  bool operator==(const Relabelling&) const = default;
};

struct Plan {
  Layout from;
  Layout to;
  std::vector<Step> steps = {};
  double cost_us = 0;
  int64_t bytes = 0;  // the sum of the steps' bytes
  int64_t total_bytes = 0;
  int64_t peak_bytes = 0;
  bool in_two_levels = false;                   // the topology has two_levels, and the meshes several hosts
  int64_t crossing_bytes = 0;                   // the sum of the steps'
  std::string topology = {};                    // where its figures come from
  std::vector<Alternative> alternatives = {};   // the cheapest first
  int64_t layouts_searched = 0;                 // layouts that the plan could have passed through
  int64_t steps_priced = 0;                     // of the steps between these layouts
  std::optional<Relabelling> relabelling = {};  // of `to`, if it was asked for

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
  std::optional<Relabel> relabel = {};  // the plan leads to `to` on the ranks that were chosen
};

// The cheapest plan; the same on every rank. Results are kept: asking again takes microseconds. Thread-safe.
// Throws std::invalid_argument if there is none, and says why.
std::shared_ptr<const Plan> plan(const Layout& from, const Layout& to, const PlanOptions& options = {});

// The targets of tensors that move together, on the ranks that were chosen for their meshes.
struct RelabelledTargets {
  std::vector<Layout> to = {};                 // one per tensor
  std::vector<Relabelling> relabellings = {};  // one per list of ranks that the given targets have
};

// Chooses ranks for the meshes of `to`, so that ranks hold as much as possible of what they are to have.
// Targets that list the same ranks are relabelled alike. Of the choices that hold most it is one in which
// most ranks stand where they were given: an exact solution of the assignment problem, in time proportional
// to the cube of the ranks (0.3 s for 1024). Targets stay as they were given if one of them keeps a Partial,
// or if the plans would send no fewer bytes in all or cost more. Local, and the same on every rank. Throws
// std::invalid_argument if the ranks to choose from are too few or no ranks, or if there are more than 1024.
RelabelledTargets relabelled(const std::vector<Layout>& from, const std::vector<Layout>& to,
                             const Relabel& relabel, const PlanOptions& options = {});

// relabelled: ranks 0,2,1,3 stand where 0-3 were given, and all ranks send 0 B instead of 2.0 MiB
std::string to_string(const Relabelling& relabelling);

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
