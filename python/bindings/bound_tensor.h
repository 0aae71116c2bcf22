// MeshTensors as Python has them, and what is read for calls with them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>

#include "shardway/mesh_tensor.h"
#include "shardway/plan.h"

namespace shardway::python {

namespace py = pybind11;

// A tensor with its process group as Python knows it.
struct BoundTensor {
  MeshTensor tensor;
  py::object group;
};

// Where a tensor is to go. Throws std::invalid_argument.
Layout read_target(const Layout& from, const py::handle& placements, const py::handle& mesh,
                   const std::shared_ptr<const Plan>& plan);
std::optional<Topology> read_topology(const py::handle& value);

}  // namespace shardway::python
