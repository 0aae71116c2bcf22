// What a call of redistribute is about: one tensor, and the plan to its target.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/call/capture.h"
#include "ops/mesh/adjoint.h"
#include "ops/mesh/prepared_plan.h"
#include "shardway/redistribute.h"

namespace shardway {

// One rank's call, as it understood its arguments.
struct Request {
  std::shared_ptr<const PreparedPlan> prepared = nullptr;
  std::optional<Layout> gradient = std::nullopt;  // the layout of the result's gradient
  bool keeps_layout = false;                      // the result is the input
};

// Throws std::invalid_argument if the local tensor is not what the layout says, or if the group cannot move
// it.
void check_local(const MeshTensor& tensor, const Group& group);
void check_local(const MeshTensor& tensor);

// Whether this rank knows all about the others: every rank has a tensor on a device, and layouts say the
// rest. To hear the others, the host would have to wait.
[[gnu::visibility("default")]] bool knows_all(const MeshTensor& tensor);

// Fills in `request` until it finds an invalid argument; then throws std::invalid_argument. The local tensor
// has been checked.
void read_request(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options,
                  Request& request);

// The target on the ranks that are chosen for it. Throws std::invalid_argument if there is no plan.
Layout relabelled_target(const MeshTensor& tensor, const Layout& to, const RedistributeOptions& options);
std::vector<Layout> relabelled_targets(const std::vector<MeshTensor>& tensors, const std::vector<Layout>& to,
                                       const RedistributeListOptions& options);

// The layout as text, with the ranks of its mesh unless they are 0, 1, …
std::string described(const Layout& layout);

// What ranks must say alike about the request, in words: a line per point.
std::string words_of(const Layout& from, const Layout& to, const Request& request,
                     const MeshTensor::Place& place);

// The local tensor or, on a rank outside the mesh, a tensor without elements.
at::Tensor input_of(const MeshTensor& tensor, const PreparedPlan& prepared, c10::DeviceType device);

// Adds the tensor to the call that this thread prepares: `x` is what input_of returned and `read` what its
// moves read. Returns its index among the inputs.
size_t keep_input(const MeshTensor& tensor, const Layout& to, const at::Tensor& x, const at::Tensor& read,
                  Capture& capture);

MeshTensor result_of(const MeshTensor& tensor, const PreparedPlan& prepared, const at::Tensor& out);

// `number` is that of the call.
std::shared_ptr<const Adjoint> adjoint_of(const MeshTensor& tensor, const Request& request,
                                          const RedistributeOptions& options, uint64_t number);

}  // namespace shardway
