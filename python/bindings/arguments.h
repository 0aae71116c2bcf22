// Python arguments read as the C++ options take them. What cannot be read is a BadArgument, so that the
// other ranks hear of it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

#include "ops/call/arguments.h"
#include "shardway/collectives.h"

namespace shardway::python {

namespace py = pybind11;

// As problem_in, of code that may also ask Python.
template <class Read>
std::string problem_reading(Read&& read) {
  try {
    return problem_in(read);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    const std::string text = py::str(error.value()).cast<std::string>();
    return text.empty() ? "an argument raised " + py::str(error.type()).cast<std::string>() : text;
  }
}

at::Tensor read_tensor(const char* name, const py::handle& value);
std::optional<at::Tensor> read_optional_tensor(const char* name, const py::handle& value);
int64_t read_integer(const char* name, const py::handle& value);
std::optional<int64_t> read_optional_integer(const char* name, const py::handle& value);
bool read_flag(const char* name, const py::handle& value);  // whatever is true or false
std::optional<Sizes> read_sizes(const char* name,
                                const py::handle& value);  // a sequence or an integer tensor
Grad read_grad(const py::handle& value);
Op read_op(const py::handle& value);

// For the end of a message: a question, where the value would be a group and not what was asked for.
std::string hint_at_group(const py::handle& value);

// None is no group.
Group read_group(const py::handle& value);

// With the global ranks of its ranks; None where they are 0, 1, …
Group read_group(const py::handle& value, const py::handle& global_ranks);

// A group as a caller may name it, with its global ranks: the process group, and what the library makes of
// it.
struct ReadGroup {
  py::object object;
  Group group;
};
ReadGroup read_any_group(const py::handle& value, const char* op);

py::tuple as_tuple(const Sizes& sizes);

}  // namespace shardway::python
