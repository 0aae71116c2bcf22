#include "values.h"

#include <stdexcept>

namespace shardway::python {
namespace {

[[noreturn]] void refuse(const std::string& what, const py::handle& value, const char* why) {
  throw std::invalid_argument(what + "=" + text_of(value) + " is not a " + why);
}

Placement read_placement(const py::handle& value) {
  if (py::isinstance<Placement>(value)) return value.cast<Placement>();
  return dtensor("placement_of")(value).cast<Placement>();
}

std::string at(const std::string& what, size_t index) { return what + "[" + std::to_string(index) + "]"; }

}  // namespace

std::string text_of(const py::handle& value) { return py::repr(value).cast<std::string>(); }

std::string type_name(const py::handle& value) {
  return py::str(py::type::of(value).attr("__name__")).cast<std::string>();
}

std::optional<int64_t> integer_in(const py::handle& value) {
  if (py::isinstance<py::bool_>(value) || PyIndex_Check(value.ptr()) == 0) return std::nullopt;
  const Py_ssize_t number = PyNumber_AsSsize_t(value.ptr(), PyExc_OverflowError);
  if (number != -1 || PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  return std::nullopt;
}

int64_t read_int(const std::string& what, const py::handle& value) {
  const std::optional<int64_t> number = integer_in(value);
  if (!number) refuse(what, value, "64-bit integer");
  return *number;
}

double read_float(const std::string& what, const py::handle& value) {
  const double number = py::isinstance<py::bool_>(value) ? -1.0 : PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() == nullptr && !py::isinstance<py::bool_>(value)) return number;
  PyErr_Clear();
  refuse(what, value, "number");
}

std::string read_text(const std::string& what, const py::handle& value) {
  if (!py::isinstance<py::str>(value)) refuse(what, value, "string");
  return value.cast<std::string>();
}

std::vector<py::object> read_list(const std::string& what, const py::handle& value) {
  if (!py::isinstance<py::sequence>(value) || py::isinstance<py::str>(value)) refuse(what, value, "sequence");
  std::vector<py::object> items;
  for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value)) {
    items.push_back(py::reinterpret_borrow<py::object>(item));
  }
  return items;
}

std::vector<int64_t> read_ints(const std::string& what, const py::handle& value) {
  std::vector<int64_t> numbers;
  for (const py::object& item : read_list(what, value)) {
    numbers.push_back(read_int(at(what, numbers.size()), item));
  }
  return numbers;
}

std::vector<std::string> read_texts(const std::string& what, const py::handle& value) {
  std::vector<std::string> texts;
  for (const py::object& item : read_list(what, value)) {
    texts.push_back(read_text(at(what, texts.size()), item));
  }
  return texts;
}

py::object dtensor(const char* function) { return py::module_::import("shardway._dtensor").attr(function); }

Mesh read_mesh(const py::handle& value) {
  if (py::isinstance<Mesh>(value)) return value.cast<Mesh>();
  return dtensor("mesh_of")(value).cast<Mesh>();
}

// Makes shard dims that count from the end count from the front.
std::vector<Placement> read_placements(const py::handle& value, int64_t ndim) {
  std::vector<Placement> placements;
  for (const py::object& item : read_list("layout: placements", value)) {
    Placement placement = read_placement(item);
    if (placement.is_shard() && placement.dim < 0 && placement.dim >= -ndim) placement.dim += ndim;
    placements.push_back(std::move(placement));
  }
  return placements;
}

ShardOrder read_order(const py::handle& value) {
  ShardOrder order;
  if (value.is_none()) return order;
  for (const py::object& item : read_list("layout: order", value)) {
    order.push_back(read_ints("layout: order[" + std::to_string(order.size()) + "]", item));
  }
  return order;
}

Layout read_layout(const char* what, const py::handle& value) {
  if (py::isinstance<Layout>(value)) return value.cast<Layout>();
  return dtensor("layout_of")(value, what).cast<Layout>();
}

}  // namespace shardway::python
