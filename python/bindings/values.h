// Python values and the planner's: numbers, sequences, meshes, placements, layouts. What cannot be read is a
// std::invalid_argument, which Python sees as ValueError. torch's own objects are read by shardway._dtensor.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardway/layout.h"

namespace shardway::python {

namespace py = pybind11;

std::string text_of(const py::handle& value);  // its repr
std::string type_name(const py::handle& value);

// Nothing when it is no integer of 64 bits; a bool is none.
std::optional<int64_t> integer_in(const py::handle& value);

// `what` names the argument in the message, such as "layout: shape".
int64_t read_int(const std::string& what, const py::handle& value);
double read_float(const std::string& what, const py::handle& value);
std::string read_text(const std::string& what, const py::handle& value);
std::vector<py::object> read_list(const std::string& what, const py::handle& value);
std::vector<int64_t> read_ints(const std::string& what, const py::handle& value);
std::vector<std::string> read_texts(const std::string& what, const py::handle& value);

// A function of shardway._dtensor, which is loaded when the first of torch's objects is met.
py::object dtensor(const char* function);

Mesh read_mesh(const py::handle& value);                        // ours or a DeviceMesh
Layout read_layout(const char* what, const py::handle& value);  // ours or a DTensorSpec

// Placements, ours or torch's, of a tensor of so many dims.
std::vector<Placement> read_placements(const py::handle& value, int64_t ndim);
ShardOrder read_order(const py::handle& value);

template <class Item>
py::tuple tuple_of(const std::vector<Item>& items) {
  py::tuple result(items.size());
  for (size_t i = 0; i < items.size(); ++i) result[i] = py::cast(items[i]);
  return result;
}

}  // namespace shardway::python
