// The plan by which a tensor would be redistributed.
#pragma once

#include <memory>

#include "shardway/mesh_tensor.h"
#include "shardway/plan.h"

namespace [[gnu::visibility("default")]] shardway {

// Returns the plan that redistribute would run for this tensor: without a given topology, on a group whose
// ranks are on several hosts, it is priced in two levels with the group's hosts. Local, unless it comes
// before the group's first call: then it is collective, since the ranks find out which of them share a host.
// Throws c10::ValueError if there is no plan, and says why.
std::shared_ptr<const Plan> plan(const MeshTensor& tensor, const Layout& to, const PlanOptions& options = {});

}  // namespace shardway
