// Converts Python values to the planner's: numbers, sequences, meshes, placements, layouts. Throws
// std::invalid_argument, which Python sees as ValueError, for a value that cannot be read. shardway._dtensor
// reads torch's own objects.
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

// Returns nothing if the value is not an integer of 64 bits. A bool is not an integer.
std::optional<int64_t> integer_in(const py::handle& value);

// `what` names the argument in the message, such as "layout: shape".
int64_t read_int(const std::string& what, const py::handle& value);
double read_float(const std::string& what, const py::handle& value);
std::string read_text(const std::string& what, const py::handle& value);
std::vector<py::object> read_list(const std::string& what, const py::handle& value);
std::vector<int64_t> read_ints(const std::string& what, const py::handle& value);
std::vector<std::string> read_texts(const std::string& what, const py::handle& value);

// A function of shardway._dtensor, which is loaded when the first of torch's objects is read.
py::object dtensor(const char* function);

Mesh read_mesh(const py::handle& value);                        // a Mesh or a DeviceMesh
Layout read_layout(const char* what, const py::handle& value);  // a Layout or a DTensorSpec

// Placements, shardway's or torch's, of a tensor with `ndim` dims.
std::vector<Placement> read_placements(const py::handle& value, int64_t ndim);
ShardOrder read_order(const py::handle& value);

template <class Item>
py::tuple tuple_of(const std::vector<Item>& items) {
  py::tuple result(items.size());
  for (size_t i = 0; i < items.size(); ++i) result[i] = py::cast(items[i]);
  return result;
}

}  // namespace shardway::python
