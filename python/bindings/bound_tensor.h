// MeshTensors as Python holds them, and how arguments of calls with them are read.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardway/mesh_tensor.h"
#include "shardway/plan.h"

namespace shardway::python {

namespace py = pybind11;

// A tensor with its process group as Python knows it.
struct BoundTensor {
  MeshTensor tensor;
  py::object group;
};

// The layout to which a tensor moves. `living` is the group of the living ranks, if one is given. Throws
// std::invalid_argument if the arguments are invalid.
Layout read_target(const Layout& from, const py::handle& placements, const py::handle& mesh,
                   const std::shared_ptr<const Plan>& plan, const std::optional<Group>& living);

// The group that moves a tensor: its own or, if one is given, that of the living ranks.
struct Mover {
  py::object object;
  std::optional<Group> living;
};
Mover read_mover(const py::object& own, const py::object& given);

// The copies of one tensor: None, a MeshTensor, or several.
std::vector<MeshTensor> read_copies(const py::handle& value);

// Raises a problem of this rank on every rank of the group.
[[noreturn]] void refuse_in_group(const Group& group, const std::string& problem);
std::optional<Topology> read_topology(const py::handle& value);

// None or False: nothing; True: the ranks of the target's mesh; else the ranks to choose from.
std::optional<Relabel> read_relabel(const py::handle& value);

}  // namespace shardway::python
