// A route on tensors as the bytes that src/shm moves.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shardway/route.h"
#include "shm/part.h"
#include "transport/transport.h"

namespace shardway {

// Throws c10::ValueError for a dtype that cannot be reduced.
shm::Element element_of(at::ScalarType dtype);

// A rank's part, and the memory that its pulls point to. Neither copied nor moved.
class ShmPart {
 public:
  // The tensors, those of `known` too, live as long as this.
  ShmPart(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known);
  ShmPart(const ShmPart&) = delete;
  ShmPart& operator=(const ShmPart&) = delete;

  const shm::Part& part() const { return part_; }

 private:
  void add_pulls(const Route& route);
  void add_landings(const Route& route, at::ScalarType dtype);

  shm::Part part_;
  std::vector<shm::Input> here_;  // by rank; without data where the rank's input is not here
};

}  // namespace shardway
