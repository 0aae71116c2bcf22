// A plan made ready for this rank of a group, and run on tensors.
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
#include "transport/common/transport.h"

namespace shardway {

struct PreparedPlan {
  std::shared_ptr<const Plan> plan = nullptr;
  std::vector<Stage> stages = {};
  uint64_t hash = 0;                // of the plan and of the group's numbering
  Wanted wanted = Wanted::nothing;  // of the input, in the first step

  // How addends are combined, if any are: avg where they are divided, by this.
  std::optional<Op> combines = std::nullopt;
  int64_t divisor = 1;
};

bool communicates(const PreparedPlan& prepared);

// Whether every rank of the group holds all of a tensor, so that no plan from there communicates.
[[gnu::visibility("default")]] bool is_everywhere(const Layout& layout, const Group& group);

// Kept: asking again for the same plan takes no planning. Throws std::invalid_argument where the plan cannot
// be run by the group.
std::shared_ptr<const PreparedPlan> prepare(const std::shared_ptr<const Plan>& plan,
                                            const MeshTensor::Place& place);

// A tensor between two steps of its plan: what it is held as, and the exchange that comes next.
class Walker {
 public:
  Walker(const PreparedPlan& prepared, at::Tensor x) : prepared_(prepared), held_(std::move(x)) {}

  const PreparedPlan& prepared() const { return prepared_; }
  const at::Tensor& held() const { return held_; }

  // The next exchange with others, once the one before is over; nothing after the last.
  std::optional<RouteCall> next_leg();

 private:
  void finish_stage();

  const PreparedPlan& prepared_;
  at::Tensor held_;
  size_t stage_ = 0;
  at::Tensor out_ = {};
  at::Tensor landing_ = {};
  bool is_collected_ = false;
};

// What this rank holds after the last step: collective. `known` are the inputs of the next exchange.
at::Tensor walk(Walker& walker, const KnownInputs& known, const Group& group, const Subject& subject);

// The same for a list: every tensor one exchange further at a time, all of them at once.
void walk(std::vector<Walker>& walkers, const Group& group, const Subject& subject);

// This rank's shape before the first step; of a rank outside the mesh without elements.
std::vector<int64_t> input_shape(const PreparedPlan& prepared, const MeshTensor::Place& place);

}  // namespace shardway
