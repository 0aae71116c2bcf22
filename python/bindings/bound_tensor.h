// MeshTensors as Python holds them, and how arguments of calls with them are read.
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

// The layout to which a tensor moves. Throws std::invalid_argument if the arguments are invalid.
Layout read_target(const Layout& from, const py::handle& placements, const py::handle& mesh,
                   const std::shared_ptr<const Plan>& plan);
std::optional<Topology> read_topology(const py::handle& value);

}  // namespace shardway::python
