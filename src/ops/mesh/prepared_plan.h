// A plan that is ready to run on this rank of a group, and the code that runs it on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ops/call/header.h"
#include "ops/mesh/place.h"
#include "plan/search/stages.h"
#include "record/trace.h"
#include "transport/common/transport.h"

namespace shardway {

struct PreparedPlan {
  std::shared_ptr<const Plan> plan = nullptr;
  std::vector<Stage> stages = {};
  uint64_t hash = 0;                // of the plan and of the group's numbering
  Wanted wanted = Wanted::nothing;  // what others need from the input in the first step

  // How addends are combined, if there are any; avg if the result is divided by `divisor`.
  std::optional<Op> combines = std::nullopt;
  int64_t divisor = 1;
};

bool communicates(const PreparedPlan& prepared);

// Whether every rank of the group holds the whole tensor, so that no plan from this layout communicates.
[[gnu::visibility("default")]] bool is_everywhere(const Layout& layout, const Group& group);

// Prepares a plan for this rank. Results are kept, so that the same plan is prepared only once. Throws
// std::invalid_argument if the group cannot run the plan.
std::shared_ptr<const PreparedPlan> prepare(const std::shared_ptr<const Plan>& plan,
                                            const MeshTensor::Place& place);

// A tensor between two steps of its plan: what this rank holds now, and the exchange that comes next.
class Walker {
 public:
  // The last step writes into `out`, if it is defined.
  Walker(const PreparedPlan& prepared, at::Tensor x, at::Tensor out = {})
      : prepared_(prepared), held_(std::move(x)), given_(std::move(out)) {}

  const PreparedPlan& prepared() const { return prepared_; }
  const at::Tensor& held() const { return held_; }

  // Returns the next exchange with others, or nothing after the last. Called when the previous exchange is
  // over.
  std::optional<RouteCall> next_leg();

 private:
  void finish_stage();

  const PreparedPlan& prepared_;
  at::Tensor held_;
  at::Tensor given_;
  size_t stage_ = 0;
  at::Tensor out_ = {};
  at::Tensor landing_ = {};
  bool is_collected_ = false;
  record::OpenStep step_ = {};
};

// The next exchange of a tensor that moves alone. If this thread prepares a call, the exchange is kept.
std::optional<RouteCall> next_kept_leg(Walker& walker);

// Runs the remaining steps and returns what this rank holds after the last. Collective. `known` are inputs of
// the next exchange that are here already.
at::Tensor walk(Walker& walker, const KnownInputs& known, const Group& group, const Subject& subject);

// The same for a list: takes all tensors one exchange further at a time.
void walk(std::vector<Walker>& walkers, const Group& group, const Subject& subject);

// Whether tensors of this layout are packed with others in a list. The same on every rank.
bool is_small(const Layout& layout, Transport& transport);

// The shape of this rank's input before the first step. On a rank outside the mesh it has no elements.
std::vector<int64_t> input_shape(const PreparedPlan& prepared, const MeshTensor::Place& place);

}  // namespace shardway
