// MeshTensors as Python has them, and what is read for calls with them.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>

#include "ops/arguments.h"
#include "shardway/mesh_tensor.h"
#include "shardway/plan.h"

namespace shardway::python {

namespace py = pybind11;

// A tensor with its process group as Python knows it.
struct BoundTensor {
  MeshTensor tensor;
  py::object group;
};

// As problem_in, of code that may also ask Python.
template <class Read>
std::string problem_reading(Read&& read) {
  try {
    return problem_in(read);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ValueError) && !error.matches(PyExc_TypeError)) throw;
    return py::str(error.value()).cast<std::string>();
  }
}

// Where a tensor is to go. Throws std::invalid_argument.
Layout read_target(const Layout& from, const py::handle& placements, const py::handle& mesh,
                   const std::shared_ptr<const Plan>& plan);
std::optional<Topology> read_topology(const py::handle& value);

}  // namespace shardway::python
