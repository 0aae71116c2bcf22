#include "ops/mesh/prepared_plan.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "ops/call/arguments.h"
#include "ops/call/capture.h"
#include "plan/geometry/exchange_rules.h"
#include "shm/memory/fork_mutex.h"
#include "transport/common/boxes.h"
#include "transport/common/giving_up.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

struct Key {
  const Plan* plan;
  int64_t rank;
  int64_t whole_up_to_bytes;
  std::vector<int64_t> numbers;

  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    return std::hash<const Plan*>()(key.plan) * 31 + static_cast<size_t>(key.rank);
  }
};

// The prepared plans made so far. A plan is identified by its address, which no other plan can have while
// this one is kept.
class PreparedPlans {
 public:
  static PreparedPlans& instance() {
    static auto* plans = new PreparedPlans;  // never destroyed: posted calls may outlive the end of main
    return *plans;
  }

  std::shared_ptr<const PreparedPlan> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second;
  }

  void keep(const Key& key, std::shared_ptr<const PreparedPlan> prepared) {
    Known forgotten;  // ends after the lock does
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostKept) known_.swap(forgotten);
    known_.emplace(key, std::move(prepared));
  }

 private:
  using Known = std::unordered_map<Key, std::shared_ptr<const PreparedPlan>, KeyHash>;
  static constexpr size_t kMostKept = 4096;

  shm::ForkMutex mutex_;
  Known known_;
};

[[maybe_unused]] const PreparedPlans& plans_at_load = PreparedPlans::instance();

// Whether every other rank pulls all of this rank's input.
bool goes_whole_to_all(const Route& route) {
  const Box whole = Box::whole(route.input_shape);
  int64_t others = 0;
  for (const Move& push : route.pushes) {
    if (!(push.mine == whole)) return false;
    if (push.peer != route.rank) ++others;
  }
  return others == route.size - 1;
}

Wanted wanted_in(const Stage& stage) {
  if (stage.route.pattern == Pattern::own || stage.collection) return Wanted::nothing;
  return goes_whole_to_all(stage.route) ? Wanted::whole : Wanted::parts;
}

std::shared_ptr<const PreparedPlan> make_way(const std::shared_ptr<const Plan>& plan,
                                             const MeshTensor::Place& place, int64_t whole_up_to_bytes) {
  place.ranks.check_cover(plan->from.mesh());
  place.ranks.check_cover(plan->to.mesh());
  auto prepared = std::make_shared<PreparedPlan>();
  prepared->plan = plan;
  prepared->stages = stages_of(*plan, place.ranks, place.group.rank(), whole_up_to_bytes);
  prepared->hash = hash_of(*plan);
  for (const int64_t number : place.ranks.numbers())
    prepared->hash = prepared->hash * 31 + static_cast<uint64_t>(number);
  const ExchangeRules rules = exchange_rules_between(plan->from, plan->to);
  prepared->divisor = rules.divisor;
  if (!rules.resolved.empty()) prepared->combines = rules.divisor == 1 ? rules.op : Op::avg;
  if (!prepared->stages.empty()) prepared->wanted = wanted_in(prepared->stages.front());
  return prepared;
}

record::TracedStep traced(const Step& step) {
  return {
      .name = c10::str(name_of(step.kind), " ", placements_text(step.from), " -> ", placements_text(step.to)),
      .bytes = step.bytes,
      .modelled_us = step.cost_us};
}

// To be told if this rank fails: the others, if they take part.
Transport& audience(bool is_for_others, const Group& group) {
  return is_for_others ? group.transport() : Group::alone().transport();
}

std::vector<RouteCall> next_legs(std::vector<Walker>& walkers, Transport& transport) {
  Capture* const capture = Capture::current();
  if (capture != nullptr) capture->next_round();
  std::vector<RouteCall> legs;
  for (Walker& walker : walkers) {
    if (auto leg = walker.next_leg()) {
      leg->is_small = leg->x.is_cpu() && is_small(walker.prepared().plan->from, transport);
      if (capture != nullptr) capture->add_together(*leg);
      legs.push_back(*std::move(leg));
    }
  }
  return legs;
}

}  // namespace

std::shared_ptr<const PreparedPlan> prepare(const std::shared_ptr<const Plan>& plan,
                                            const MeshTensor::Place& place) {
  Transport& transport = place.group.transport();
  const int64_t whole_up_to_bytes = named("redistribute", [&] {
    return transport.combines_whole({}) ? std::numeric_limits<int64_t>::max() : transport.slot_bytes();
  });
  const Key key{plan.get(), place.group.rank(), whole_up_to_bytes, place.ranks.numbers()};
  if (auto found = PreparedPlans::instance().find(key)) return found;
  auto made = make_way(plan, place, whole_up_to_bytes);
  PreparedPlans::instance().keep(key, made);
  return made;
}

// For a larger tensor, two copies cost more than packing saves.
bool is_small(const Layout& layout, Transport& transport) {
  return Box::whole(layout.shape()).volume() * item_bytes(layout.dtype()) <= transport.slot_bytes();
}

bool communicates(const PreparedPlan& prepared) {
  return std::any_of(prepared.stages.begin(), prepared.stages.end(),
                     [](const Stage& stage) { return stage.route.pattern != Pattern::own; });
}

bool is_everywhere(const Layout& layout, const Group& group) {
  const auto is_replica = [](const Placement& placement) { return placement.is_replicate(); };
  return layout.mesh().size() == group.size() &&
         std::all_of(layout.placements().begin(), layout.placements().end(), is_replica);
}

std::optional<RouteCall> Walker::next_leg() {
  Capture* const capture = Capture::current();
  for (; stage_ < prepared_.stages.size(); finish_stage()) {
    const Stage& stage = prepared_.stages[stage_];
    if (!out_.defined()) {
      step_.begin();
      const bool is_last = stage_ + 1 == prepared_.stages.size();
      out_ = is_last && given_.defined() ? given_ : warm_empty(stage.output_shape, held_.options());
      landing_ = stage.collection ? view_of(out_, stage.landing) : out_;
      if (stage.route.pattern != Pattern::own) return RouteCall{&stage.route, held_, landing_};
      if (capture != nullptr) capture->add_alone(stage.route, held_, landing_);
      Group::alone().transport().start(stage.route, held_, landing_, {}, {})->finish();
    }
    if (stage.collection && !std::exchange(is_collected_, true))
      return RouteCall{&*stage.collection, landing_, out_};
  }
  return std::nullopt;
}

std::optional<RouteCall> next_kept_leg(Walker& walker) {
  Capture* const capture = Capture::current();
  if (capture != nullptr) capture->next_round();
  std::optional<RouteCall> leg = walker.next_leg();
  if (capture != nullptr && leg) capture->add_together(*leg);
  return leg;
}

// Releases the step's input, unless the caller still holds it.
void Walker::finish_stage() {
  if (step_.is_traced()) step_.end(traced(prepared_.plan->steps[stage_]));
  held_ = std::exchange(out_, at::Tensor());
  landing_.reset();
  is_collected_ = false;
  ++stage_;
}

at::Tensor walk(Walker& walker, const KnownInputs& known, const Group& group, const Subject& subject) {
  const KnownInputs nothing;
  const KnownInputs* here = &known;
  const auto run = [&] {
    while (const auto leg = next_kept_leg(walker)) {
      group.transport().start(*leg->route, leg->x, leg->out, *here, subject)->finish();
      here = &nothing;
    }
  };
  or_give_up(audience(communicates(walker.prepared()), group), run);
  return walker.held();
}

void walk(std::vector<Walker>& walkers, const Group& group, const Subject& subject) {
  if (walkers.size() == 1) {
    walk(walkers[0], {}, group, subject);
    return;
  }
  const auto speaks = [](const Walker& walker) { return communicates(walker.prepared()); };
  or_give_up(audience(std::any_of(walkers.begin(), walkers.end(), speaks), group), [&] {
    for (;;) {
      const std::vector<RouteCall> legs = next_legs(walkers, group.transport());
      if (legs.empty()) return;
      group.transport().start_all(legs, subject)->finish();
    }
  });
}

std::vector<int64_t> input_shape(const PreparedPlan& prepared, const MeshTensor::Place& place) {
  const auto position = prepared.plan->from.mesh().position_of(place.number());
  if (position) return prepared.plan->from.box_at(*position).extent;
  return std::vector<int64_t>(prepared.plan->from.shape().size(), 0);
}

}  // namespace shardway
