// A tensor that lies on a mesh of ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "shardway/group.h"
#include "shardway/layout.h"

namespace [[gnu::visibility("default")]] shardway {

// What this rank holds of a tensor, how the tensor lies on its mesh, and the group that moves it. Cheap to
// copy; copies share the local tensor.
class MeshTensor {
 public:
  // Local: nothing is communicated. `local` is this rank's box, undefined on a rank outside the mesh. The
  // mesh names ranks by their global numbers, and the group contains all of them. Throws c10::ValueError if
  // these do not fit together.
  MeshTensor(at::Tensor local, const Layout& layout, const Group& group = {});

  // Returns another tensor with this layout and group, checked in the same way; the two share the objects
  // that describe them.
  MeshTensor alike(at::Tensor local) const;

  const at::Tensor& local() const { return local_; }
  const Layout& layout() const { return *layout_; }
  const Group& group() const;

  int64_t rank() const;            // this rank's global number
  std::optional<Box> box() const;  // what this rank holds; nothing outside the mesh

  // Returns the whole tensor on every rank of the mesh, and an undefined one on the others. Collective, like
  // redistribute to Replicate.
  at::Tensor full() const;

  // The tensor that ties this rank to autograd: the local tensor or, on a rank outside the mesh, an empty one
  // if the others have a gradient, since backward is a collective that every rank of the group runs.
  const at::Tensor& anchor() const { return anchor_; }

  // Runs backward from the anchor with the gradient of the local tensor, by default ones. Does nothing on a
  // rank that has neither a local tensor nor an anchor.
  void backward(const std::optional<at::Tensor>& gradient = std::nullopt) const;

  // The ranks that take part. All tensors that were made from one another share it.
  struct Place;

  // Checks nothing: the caller knows that the arguments fit together.
  MeshTensor(at::Tensor local, at::Tensor anchor, std::shared_ptr<const Layout> layout,
             std::shared_ptr<const Place> place);
  const std::shared_ptr<const Place>& place() const { return place_; }

 private:
  at::Tensor local_;
  at::Tensor anchor_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<const Place> place_;
};

// f32[8,6] on 2x2: S0,R; rank 1 holds [0,4)×[0,6)
std::string to_string(const MeshTensor& tensor);

}  // namespace shardway
