#include "arguments.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/python_variable.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unordered_map>

#include "ops/call/arguments.h"
#include "ops/call/capture.h"
#include "ops/operators/grad_names.h"
#include "transport/group/process_group.h"
#include "values.h"

namespace shardway::python {
namespace {

std::string read_word(const char* name, const py::handle& value) {
  if (!py::isinstance<py::str>(value))
    throw BadArgument(c10::str(name, "=", text_of(value), " is not a string"));
  return value.cast<std::string>();
}

Sizes read_size_tensor(const char* name, const at::Tensor& sizes) {
  const bool is_list = sizes.dim() == 1 && at::isIntegralType(sizes.scalar_type(), /*includeBool=*/false);
  if (!is_list)
    throw BadArgument(c10::str(name, " is a ", sizes.dim(), "-d ", dtype_name(sizes.scalar_type()),
                               " tensor; a 1-d LongTensor is needed"));
  const at::Tensor longs = sizes.to(at::kCPU, at::kLong).contiguous();
  return {longs.const_data_ptr<int64_t>(), longs.const_data_ptr<int64_t>() + longs.numel()};
}

// A tuple of Python's own integers, as most are; nothing for any other value.
std::optional<Sizes> read_plain_sizes(const py::handle& value) {
  if (!PyTuple_CheckExact(value.ptr())) return std::nullopt;
  Sizes sizes(static_cast<size_t>(PyTuple_GET_SIZE(value.ptr())));
  for (size_t i = 0; i < sizes.size(); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(value.ptr(), static_cast<Py_ssize_t>(i));
    int overflow = 0;
    if (!PyLong_CheckExact(item)) return std::nullopt;
    sizes[i] = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0) return std::nullopt;
  }
  return sizes;
}

bool is_device_mesh(const py::handle& value) {
  return py::isinstance(value, py::module_::import("torch.distributed.device_mesh").attr("DeviceMesh"));
}

bool names_group(const py::handle& value) {
  if (py::isinstance<py::tuple>(value)) {
    const auto items = py::reinterpret_borrow<py::tuple>(value);
    return items.size() == 2 && is_device_mesh(items[0]);
  }
  return py::isinstance<py::str>(value) || py::isinstance<c10d::ProcessGroup>(value) || is_device_mesh(value);
}

// The library's groups for those of Python's that it has seen. The lock of the interpreter guards them. Never
// destroyed: groups may outlive the end of main.
std::unordered_map<const PyObject*, Group>& watched_groups() {
  static auto* watched = new std::unordered_map<const PyObject*, Group>;
  return *watched;
}

// Drops the library's group for a process group, which this rank leaves unless somebody else owns it.
void drop_watched(const PyObject* key, const c10::weak_intrusive_ptr<c10d::ProcessGroup>& weak) {
  auto dropped = watched_groups().extract(key);
  const py::gil_scoped_release release;
  if (!dropped.empty()) dropped.mapped() = Group::alone();
  leave_if_unowned(weak);
}

// Returns the group for a process group of Python's, which this rank leaves as soon as Python has released
// it.
const Group& watched(const py::handle& value) {
  const auto known = watched_groups().find(value.ptr());
  if (known != watched_groups().end()) return known->second;
  const auto group = value.cast<c10::intrusive_ptr<c10d::ProcessGroup>>();
  const c10::weak_intrusive_ptr<c10d::ProcessGroup> weak(group);
  const auto when_gone = [key = value.ptr(), weak](const py::handle& reference) {
    drop_watched(key, weak);
    reference.dec_ref();  // it was released below, to live until now
  };
  (void)py::weakref(value, py::cpp_function(when_gone)).release();
  return watched_groups().emplace(value.ptr(), Group(group)).first->second;
}

// The same with the global ranks of its ranks.
Group watched_with_ranks(const py::handle& value, const py::handle& global_ranks) {
  (void)watched(value);
  return {value.cast<c10::intrusive_ptr<c10d::ProcessGroup>>(), *read_sizes("ranks", global_ranks)};
}

// Whether the value is this word, which is told without a copy of it.
bool is_word(const py::handle& value, const char* word) {
  return PyUnicode_Check(value.ptr()) && PyUnicode_CompareWithASCIIString(value.ptr(), word) == 0;
}

}  // namespace

std::string hint_at_group(const py::handle& value) {
  return names_group(value) ? ": did you mean group=?" : "";
}

at::Tensor read_tensor(const char* name, const py::handle& value) {
  if (!THPVariable_Check(value.ptr()))
    throw BadArgument(c10::str(name, " is a ", type_name(value), ", not a tensor"));
  return THPVariable_Unpack(value.ptr());
}

at::Tensor read_local(const char* name, const py::handle& value) {
  return value.is_none() ? at::Tensor() : read_tensor(name, value);
}

std::optional<at::Tensor> read_optional_tensor(const char* name, const py::handle& value) {
  if (value.is_none()) return std::nullopt;
  return read_tensor(name, value);
}

int64_t read_integer(const char* name, const py::handle& value) {
  const std::optional<int64_t> number = integer_in(value);
  if (number) return *number;
  const std::string hint = hint_at_group(value);
  if (!hint.empty() && !py::isinstance<py::str>(value))
    throw BadArgument(c10::str(name, " is a ", type_name(value), ", not an integer", hint));
  throw BadArgument(c10::str(name, "=", text_of(value), " is not a 64-bit integer", hint));
}

std::optional<int64_t> read_optional_integer(const char* name, const py::handle& value) {
  if (value.is_none()) return std::nullopt;
  return read_integer(name, value);
}

bool read_flag(const char* name, const py::handle& value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth == 1 && Capture::current() != nullptr)
    throw BadArgument(c10::str(name, " is given, but a prepared call waits for its moves"));
  if (truth >= 0) return truth == 1;
  PyErr_Clear();
  throw BadArgument(c10::str(name, " is a ", type_name(value), ", which is neither true nor false"));
}

std::optional<Sizes> read_sizes(const char* name, const py::handle& value) {
  if (value.is_none()) return std::nullopt;
  // To ask whether a list or tuple is a tensor is slow.
  const bool is_list = PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
  if (!is_list && THPVariable_Check(value.ptr()))
    return read_size_tensor(name, THPVariable_Unpack(value.ptr()));
  // A DeviceMesh can be indexed, as a sequence can.
  if (!py::isinstance<py::sequence>(value) || (!is_list && names_group(value))) {
    throw BadArgument(c10::str(name, " is a ", type_name(value),
                               ", not a sequence of integers or a LongTensor", hint_at_group(value)));
  }
  if (auto plain = read_plain_sizes(value)) return plain;
  Sizes sizes;
  for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value)) {
    const std::optional<int64_t> size = integer_in(item);
    if (!size) {
      throw BadArgument(c10::str(name, "[", sizes.size(), "]=", text_of(item), " is not a 64-bit integer",
                                 hint_at_group(value)));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

Grad read_grad(const py::handle& value) {
  return is_word(value, "sum") ? Grad::sum : grad_from_name(read_word("grad", value));
}

Op read_op(const py::handle& value) {
  if (is_word(value, "sum")) return Op::sum;
  try {
    return op_from_name(read_word("op", value));
  } catch (const BadArgument&) {
    throw;
  } catch (const std::invalid_argument& error) {
    throw BadArgument(error.what());
  }
}

const Group& read_group(const py::handle& value) {
  // A world that C++ code has joined does not count here.
  static const auto* alone = new Group(Group::alone());
  return value.is_none() ? *alone : watched(value);
}

ReadGroup read_any_group(const py::handle& value, const char* op) {
  const py::object found = py::module_::import("shardway._groups").attr("group_and_ranks")(value, op);
  const py::tuple group_and_ranks = found;
  const py::object group = group_and_ranks[0];
  if (group.is_none()) return {.object = group, .group = Group::alone()};
  return {.object = group, .group = watched_with_ranks(group, group_and_ranks[1])};
}

Group read_group(const py::handle& value, const py::handle& global_ranks) {
  if (value.is_none() || global_ranks.is_none()) return read_group(value);
  return watched_with_ranks(value, global_ranks);
}

py::tuple as_tuple(const Sizes& sizes) {
  py::tuple result(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) result[i] = py::int_(sizes[i]);
  return result;
}

}  // namespace shardway::python
