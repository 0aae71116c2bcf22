// A route on tensors as the bytes that src/shm moves.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "shardway/route.h"
#include "shm/calls/part.h"
#include "transport/common/transport.h"

namespace shardway {

shm::FixedDims byte_strides(const at::Tensor& t);

// Throws c10::ValueError for a dtype that cannot be reduced.
shm::Element element_of(at::ScalarType dtype);

// How the addends of a route are combined. Throws as element_of does.
shm::Combine combination(const Route& route, at::ScalarType dtype);

// A rank's part, and the memory that its pulls point to. It is neither copied nor moved.
class ShmPart {
 public:
  // Holds only what others take from `x`, until complete() adds the rest. `x` may be undefined.
  ShmPart(const at::Tensor& x, const Moves& pushes);
  // The tensors, including those of `known`, must outlive this object.
  ShmPart(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known);
  // For a route whose data has arrived: `arrived` has a contiguous box per pull. The entries of this rank's
  // own pulls are not read.
  ShmPart(const Route& route, const at::Tensor& x, const at::Tensor& out,
          std::span<const std::byte* const> arrived);
  ShmPart(const ShmPart&) = delete;
  ShmPart& operator=(const ShmPart&) = delete;

  const shm::Part& part() const { return part_; }

  // See shm::Part.
  void list_offsets() { part_.lists_offsets = true; }
  void set_list_bytes(int64_t bytes) { part_.list_bytes = bytes; }

  // As the constructor with these parameters.
  void complete(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known);

 private:
  void set_tensors(const at::Tensor& x, const at::Tensor& out);
  void add_pushes(const Moves& pushes);
  void add_pulls(const Route& route);
  void add_landings(const Route& route, at::ScalarType dtype);

  shm::Part part_;
  std::vector<shm::Input> here_;  // by rank, with null data if its input is not here; or by pull
};

}  // namespace shardway
