// Reads Python arguments as the C++ options take them. Throws BadArgument for an argument that cannot be
// read, so that the other ranks hear of it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <string>

#include "ops/call/arguments.h"
#include "shardway/collectives.h"
#include "shardway/prepare.h"

namespace shardway::python {

namespace py = pybind11;

// Like problem_in, for code that may also call Python.
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
// A rank's part of a tensor on a mesh; None is an undefined tensor: the rank has none.
at::Tensor read_local(const char* name, const py::handle& value);
std::optional<at::Tensor> read_optional_tensor(const char* name, const py::handle& value);
int64_t read_integer(const char* name, const py::handle& value);
std::optional<int64_t> read_optional_integer(const char* name, const py::handle& value);
bool read_flag(const char* name, const py::handle& value);  // any value that Python takes for true or false
std::optional<Sizes> read_sizes(const char* name,
                                const py::handle& value);  // a sequence or an integer tensor
Grad read_grad(const py::handle& value);
Op read_op(const py::handle& value);

// Returns a question for the end of a message if the value looks like a group that was passed by mistake;
// else nothing.
std::string hint_at_group(const py::handle& value);

// None means no group. The result lives as long as the value.
const Group& read_group(const py::handle& value);

// The same with the global ranks of the group, which may be None: then the process group tells them itself.
Group read_group(const py::handle& value, const py::handle& global_ranks);

// A group in any form that a caller may pass, with its global ranks: the process group, and the library's
// Group for it.
struct ReadGroup {
  py::object object;
  Group group;
};
ReadGroup read_any_group(const py::handle& value, const char* op);

py::tuple as_tuple(const Sizes& sizes);

// What each rank sends to each, a tuple by rank.
py::tuple rows_of(const RunBytes& bytes);

}  // namespace shardway::python
