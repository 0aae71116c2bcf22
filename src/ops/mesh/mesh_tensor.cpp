#include "shardway/mesh_tensor.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/mesh/place.h"
#include "shardway/redistribute.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw BadArgument(c10::str(parts...));
}

void check_fit(const at::Tensor& local, const Layout& layout, const MeshTensor::Place& place) {
  place.ranks.check_cover(layout.mesh());
  const auto position = layout.mesh().position_of(place.number());
  if (!position) {
    if (local.defined())
      refuse("this rank is outside the mesh ", to_string(layout.mesh()), ", but has a local");
    return;
  }
  if (!local.defined()) refuse("this rank is in the mesh ", to_string(layout.mesh()), ", but has no local");
  check_dense(local, "local");
  if (local.scalar_type() != scalar_type_of(layout.dtype()))
    refuse("local has dtype ", dtype_name(local.scalar_type()), ", but the layout is ", to_string(layout));
  const Box box = layout.box_at(*position);
  if (local.sizes() != at::IntArrayRef(box.extent)) {
    refuse("local has shape ", local.sizes(), ", but this rank's box of ", to_string(layout), " is ",
           at::IntArrayRef(box.extent));
  }
}

void require_fit(const at::Tensor& local, const Layout& layout, const MeshTensor::Place& place) {
  const std::string problem = problem_in([&] { check_fit(local, layout, place); });
  if (!problem.empty()) raise("MeshTensor", problem, place.number());
}

}  // namespace

MeshTensor::MeshTensor(at::Tensor local, const Layout& layout, const Group& group)
    : local_(std::move(local)),
      layout_(std::make_shared<const Layout>(layout)),
      place_(std::make_shared<const Place>(group)) {
  group.check_meant("MeshTensor");
  require_fit(local_, *layout_, *place_);
  anchor_ = local_;
}

MeshTensor MeshTensor::alike(at::Tensor local) const {
  require_fit(local, *layout_, *place_);
  const at::Tensor anchor = local;
  return {std::move(local), anchor, layout_, place_};
}

MeshTensor::MeshTensor(at::Tensor local, at::Tensor anchor, std::shared_ptr<const Layout> layout,
                       std::shared_ptr<const Place> place)
    : local_(std::move(local)),
      anchor_(std::move(anchor)),
      layout_(std::move(layout)),
      place_(std::move(place)) {}

const Group& MeshTensor::group() const { return place_->group; }

int64_t MeshTensor::rank() const { return place_->number(); }

std::optional<Box> MeshTensor::box() const {
  const auto position = layout_->mesh().position_of(rank());
  return position ? std::optional(layout_->box_at(*position)) : std::nullopt;
}

at::Tensor MeshTensor::full() const {
  return redistribute(*this, std::vector<Placement>(layout_->placements().size(), replicate())).local();
}

void MeshTensor::backward(const std::optional<at::Tensor>& gradient) const {
  if (!local_.defined() && !anchor_.defined()) return;
  if (!anchor_.requires_grad()) raise("MeshTensor", "backward of a tensor that has no gradient", rank());
  const at::Tensor seed = gradient && local_.defined() ? *gradient : empty_tensor_like(anchor_).fill_(1);
  torch::autograd::backward({anchor_}, {seed});
}

MeshTensor detached_part(at::Tensor local, const Layout& layout, int64_t rank) {
  const at::Tensor anchor = local;
  return {std::move(local), anchor, std::make_shared<const Layout>(layout),
          std::make_shared<const MeshTensor::Place>(rank)};
}

std::string to_string(const MeshTensor& tensor) {
  const auto box = tensor.box();
  return to_string(tensor.layout()) + "; rank " + std::to_string(tensor.rank()) + " holds " +
         (box ? to_string(*box) : "nothing");
}

}  // namespace shardway
