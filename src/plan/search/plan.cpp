#include "shardway/plan.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

#include "plan/geometry/cost_text.h"
#include "plan/geometry/exchange_rules.h"
#include "plan/geometry/number_text.h"
#include "plan/search/steps.h"
#include "shardway/collective_utils.h"

namespace shardway {
namespace {

constexpr std::pair<StepKind, const char*> kKindNames[] = {
    {StepKind::all_gather, "all_gather"}, {StepKind::reduce_scatter, "reduce_scatter"},
    {StepKind::all_reduce, "all_reduce"}, {StepKind::all_to_all, "all_to_all"},
    {StepKind::permute, "permute"},       {StepKind::slice, "slice"},
    {StepKind::exchange, "exchange"}};

constexpr std::pair<Rules, const char*> kRulesNames[] = {
    {Rules::shardway, "shardway"}, {Rules::torch_2_13, "torch_2_13"}, {Rules::seed_004, "seed_004"}};

constexpr const char* kDTensorsOrder = "DTensor's order";

struct PlanKey {
  Layout from;
  Layout to;
  Topology topology;
  std::optional<int64_t> max_bytes;
  Rules rules;
  std::optional<Relabel> relabel;

  // Names of mesh dims count too: a plan shows them, and a topology may give links by them.
  bool operator==(const PlanKey& other) const {
    return from == other.from && to == other.to && from.mesh().names() == other.from.mesh().names() &&
           to.mesh().names() == other.to.mesh().names() && topology == other.topology &&
           max_bytes == other.max_bytes && rules == other.rules && relabel == other.relabel;
  }
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const {
    return key.from.hash() * 31 + key.to.hash() + static_cast<size_t>(key.max_bytes.value_or(-1)) * 17 +
           static_cast<size_t>(key.rules);
  }
};

// The plans made so far. One lock guards them and the planning: planning in parallel would not pay for a
// thread.
class Plans {
 public:
  std::mutex mutex;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash> known;

  void keep(const PlanKey& key, std::shared_ptr<const Plan> plan) {
    if (known.size() >= kMostKept) known.clear();
    known.emplace(key, std::move(plan));
  }

 private:
  static constexpr size_t kMostKept = 1 << 16;
};

Plans& plans() {
  static Plans instance;
  return instance;
}

void take_steps(const SearchProblem& problem, const PricedPath& path, Plan& plan) {
  for (const PathStep& step : path.steps) {
    plan.steps.push_back(step_of(problem, step));
    plan.bytes += plan.steps.back().bytes;
    plan.total_bytes += plan.steps.back().total_bytes;
    plan.crossing_bytes += plan.steps.back().crossing_bytes;
    plan.peak_bytes = std::max(plan.peak_bytes, plan.steps.back().peak_bytes);
  }
  plan.cost_us = in_us(path.cost);
  plan.in_two_levels = problem.is_in_two_levels();
}

Alternative alternative_of(const SearchProblem& problem, const PricedPath& path, std::string name) {
  std::vector<Step> steps;
  for (const PathStep& step : path.steps) steps.push_back(step_of(problem, step));
  Alternative alternative{.name = std::move(name),
                          .text = text_of(steps, problem.layout_of(problem.source())),
                          .cost_us = in_us(path.cost),
                          .steps = static_cast<int64_t>(steps.size()),
                          .bytes = path.bytes};
  for (const Step& step : steps) {
    alternative.latency_us += step.latency_us;
    alternative.peak_bytes = std::max(alternative.peak_bytes, step.peak_bytes);
  }
  return alternative;
}

std::string reason_of(const Alternative& loser, const Plan& plan, std::optional<int64_t> max_bytes) {
  if (max_bytes && loser.peak_bytes > *max_bytes)
    return "needs " + in_bytes(loser.peak_bytes) + ", above max_bytes";
  if (loser.cost_us == plan.cost_us)
    return "costs the same in more steps, more bytes or later in the alphabet";
  double latency_us = 0;
  for (const Step& step : plan.steps) latency_us += step.latency_us;
  const auto as_shown = [](double us) { return std::abs(us) < 0.005 ? 0 : us; };  // with two decimals
  const bool is_estimate = gives_estimates(plan.topology);
  const auto shown = [&](double us) { return cost_text(us, is_estimate); };
  const double dearer = loser.cost_us - plan.cost_us;
  const double by_latency = as_shown(loser.latency_us - latency_us);
  const double by_bytes = as_shown(dearer - by_latency);
  std::string text = "+" + shown(dearer) + " us";
  if (by_latency != 0 || by_bytes != 0) text += ": ";
  if (by_latency > 0) text += "+" + shown(by_latency) + " for steps and messages";
  if (by_latency > 0 && by_bytes != 0) text += ", ";
  if (by_bytes > 0) text += "+" + shown(by_bytes) + " for bytes";
  if (by_bytes < 0) text += "although " + shown(-by_bytes) + " less for bytes";
  if (by_latency < 0) text += ", although " + shown(-by_latency) + " less for steps and messages";
  return text;
}

void add_alternative(const SearchProblem& problem, const PricedPath& path, const char* name,
                     std::optional<int64_t> max_bytes, Plan& plan) {
  Alternative alternative = alternative_of(problem, path, name);
  if (alternative.text == plan.text()) {
    if (alternative.name != kDTensorsOrder) return;
    alternative.reason = "the same steps";
    plan.alternatives.push_back(std::move(alternative));
    return;
  }
  for (Alternative& known : plan.alternatives) {
    if (known.text != alternative.text) continue;
    if (known.name == "runner-up") known.name = name;
    return;
  }
  alternative.reason = reason_of(alternative, plan, max_bytes);
  plan.alternatives.push_back(std::move(alternative));
}

// Whether DTensor can express this layout without a shard order.
bool is_dtensors(const Layout& layout) {
  return layout.has_default_order() &&
         std::none_of(layout.placements().begin(), layout.placements().end(),
                      [](const Placement& placement) { return placement.is_ragged(); });
}

// What lost: other complete paths of the search, the direct exchange, and the way DTensor would go.
void take_alternatives(SearchProblem& problem, const SearchResult& found, const PlanOptions& options,
                       Plan& plan) {
  for (const PricedPath& path : found.others)
    add_alternative(problem, path, "runner-up", options.max_bytes, plan);
  if (const auto direct = path_along(problem, {plan.from, plan.to})) {
    add_alternative(problem, *direct, "direct exchange", options.max_bytes, plan);
  }
  if (is_dtensors(plan.from) && is_dtensors(plan.to) && plan.from.mesh() == plan.to.mesh() &&
      !plan.steps.empty()) {
    if (const auto path = path_along(problem, collective_utils::greedy_layouts(plan.from, plan.to))) {
      add_alternative(problem, *path, kDTensorsOrder, options.max_bytes, plan);
    }
  }
  std::stable_sort(plan.alternatives.begin(), plan.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) { return a.cost_us < b.cost_us; });
}

Plan plan_by_search(const Layout& from, const Layout& to, const Topology& topology,
                    const PlanOptions& options) {
  SearchProblem problem(from, to, topology);
  const SearchResult found = search(problem, options.max_bytes);
  if (!found.best) {
    throw std::invalid_argument("plan: impossible within max_bytes=" + std::to_string(*options.max_bytes) +
                                " from " + placements_text(from) + " to " + placements_text(to) +
                                ", the least is " + std::to_string(least_bytes(problem)) + " bytes");
  }
  Plan plan{.from = from, .to = to, .topology = topology.source};
  plan.layouts_searched = static_cast<int64_t>(found.layouts);
  plan.steps_priced = static_cast<int64_t>(found.priced);
  take_steps(problem, *found.best, plan);
  take_alternatives(problem, found, options, plan);
  return plan;
}

// DTensor's own steps at DTensor's own prices. The bytes and the memory are ours.
Plan plan_by_torch(const Layout& from, const Layout& to, const Topology& topology) {
  const auto topo = collective_utils::MeshTopoInfo::build_from_mesh(from.mesh(), topology);
  const std::vector<Layout> layouts = collective_utils::min_cost_layouts(from, to, topo);
  SearchProblem problem(from, to, topology);
  const auto path = path_along(problem, layouts);
  if (!path)
    throw std::invalid_argument("plan: DTensor's cheapest way makes addends, which shardway does not run");
  Plan plan{.from = from, .to = to, .topology = topology.source};
  plan.layouts_searched = static_cast<int64_t>(problem.space(false).size());
  take_steps(problem, *path, plan);
  plan.cost_us = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    plan.steps[i].cost_us = collective_utils::one_step_cost(layouts[i], layouts[i + 1], topo);
    plan.cost_us += plan.steps[i].cost_us;
  }
  return plan;
}

void check(const Layout& from, const Layout& to, const PlanOptions& options) {
  if (const auto reason = why_not(from, to)) throw std::invalid_argument("plan: " + *reason);
  if (options.max_bytes && *options.max_bytes < 0) {
    throw std::invalid_argument("plan: max_bytes=" + std::to_string(*options.max_bytes) + " is negative");
  }
  if (options.rules == Rules::shardway) return;
  if (options.rules == Rules::seed_004) {
    throw std::invalid_argument("plan: the rules seed_004 have prices and no plans; ask redistribute_cost");
  }
  if (!(from.mesh() == to.mesh())) throw std::invalid_argument("plan: torch_2_13 has no way between meshes");
  if (options.max_bytes) throw std::invalid_argument("plan: torch_2_13 knows no max_bytes");
}

Plan plan_to_relabelled(const Layout& from, const Layout& to, const PlanOptions& options) {
  const RelabelledTargets targets = relabelled({from}, {to}, *options.relabel, options);
  PlanOptions without = options;
  without.relabel.reset();
  Plan made = *plan(from, targets.to.front(), without);
  made.relabelling = targets.relabellings.front();
  return made;
}

}  // namespace

const char* name_of(StepKind kind) {
  for (const auto& [candidate, name] : kKindNames) {
    if (candidate == kind) return name;
  }
  return "unknown";
}

const char* name_of(Rules rules) {
  for (const auto& [candidate, name] : kRulesNames) {
    if (candidate == rules) return name;
  }
  return "unknown";
}

Rules rules_from_name(const std::string& name) {
  for (const auto& [rules, candidate] : kRulesNames) {
    if (name == candidate) return rules;
  }
  throw std::invalid_argument("rules='" + name + "' is not one of shardway, torch_2_13, seed_004");
}

std::string Plan::text() const { return text_of(steps, from); }

std::shared_ptr<const Plan> plan(const Layout& from, const Layout& to, const PlanOptions& options) {
  const PlanKey key{from,
                    to,
                    options.topology ? *options.topology : default_topology(),
                    options.max_bytes,
                    options.rules,
                    options.relabel};
  Plans& all = plans();
  std::unique_lock lock(all.mutex);
  if (const auto found = all.known.find(key); found != all.known.end()) return found->second;
  if (options.relabel) {
    lock.unlock();
    auto made = std::make_shared<const Plan>(plan_to_relabelled(from, to, options));
    lock.lock();
    all.keep(key, made);
    return made;
  }
  check(from, to, options);
  validate(key.topology);
  auto made = std::make_shared<const Plan>(options.rules == Rules::torch_2_13
                                               ? plan_by_torch(from, to, key.topology)
                                               : plan_by_search(from, to, key.topology, options));
  all.keep(key, made);
  return made;
}

double redistribute_cost(const Layout& from, const Layout& to, const PlanOptions& options) {
  if (options.rules != Rules::shardway) {
    const Topology topology = options.topology ? *options.topology : default_topology();
    const auto topo = collective_utils::MeshTopoInfo::build_from_mesh(from.mesh(), topology);
    return collective_utils::redistribute_cost(from, to, topo, options.rules);
  }
  if (from.shape() == to.shape() && from.dtype() == to.dtype() && makes_addends(from, to)) return kImpossible;
  return plan(from, to, options)->cost_us;
}

std::vector<Step> steps_along(const std::vector<Layout>& layouts, const PlanOptions& options) {
  std::vector<Step> steps;
  if (layouts.size() < 2) return steps;
  const std::lock_guard lock(plans().mutex);  // state spaces are shared
  SearchProblem problem(layouts.front(), layouts.back(),
                        options.topology ? *options.topology : default_topology());
  const auto path = path_along(problem, layouts);
  if (!path) throw std::invalid_argument("plan: these layouts make addends, or go back to the first mesh");
  for (const PathStep& step : path->steps) steps.push_back(step_of(problem, step));
  return steps;
}

void clear_plans() {
  Plans& all = plans();
  const std::lock_guard lock(all.mutex);
  all.known.clear();
}

}  // namespace shardway
