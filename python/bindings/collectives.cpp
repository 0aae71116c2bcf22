// shardway/collectives.h for Python: see python/shardway/_C.pyi.
#include "shardway/collectives.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <utility>

#include "arguments.h"
#include "bindings.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/start.h"

namespace shardway::python {
namespace {

py::object all_gather_v_of(const py::object& x, const py::object& dim, const py::object& sizes,
                           const py::object& grad, const py::object& out, const py::object& group,
                           const py::object& async_op) {
  at::Tensor tensor;
  AllGatherOptions options;
  return run(
      Collective::all_gather_v, read_group(group), !sizes.is_none(), tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        options = {.dim = read_integer("dim", dim),
                   .sizes = read_sizes("sizes", sizes),
                   .grad = read_grad(grad),
                   .out = read_optional_tensor("out", out),
                   .group = g};
      },
      [&] { return all_gather_v(tensor, options); }, [&] { return all_gather_v_async(tensor, options); });
}

py::object reduce_scatter_v_of(const py::object& x, const py::object& sizes, const py::object& dim,
                               const py::object& op, const py::object& out, const py::object& group,
                               const py::object& async_op) {
  at::Tensor tensor;
  ReduceScatterOptions options;
  return run(
      Collective::reduce_scatter_v, read_group(group), !sizes.is_none(), tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        options = {.sizes = read_sizes("sizes", sizes),
                   .dim = read_integer("dim", dim),
                   .op = read_op(op),
                   .out = read_optional_tensor("out", out),
                   .group = g};
      },
      [&] { return reduce_scatter_v(tensor, options); },
      [&] { return reduce_scatter_v_async(tensor, options); });
}

py::object all_reduce_of(const py::object& x, const py::object& op, const py::object& grad,
                         const py::object& out, const py::object& group, const py::object& async_op) {
  at::Tensor tensor;
  AllReduceOptions options;
  return run(
      Collective::all_reduce, read_group(group), [&](const Group& g) { return skips_exchange(tensor, g); },
      tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        options = {
            .op = read_op(op), .grad = read_grad(grad), .out = read_optional_tensor("out", out), .group = g};
      },
      [&] { return all_reduce(tensor, options); }, [&] { return all_reduce_async(tensor, options); });
}

py::object all_to_all_v_of(const py::object& x, const py::object& send_sizes, const py::object& dim,
                           const py::object& recv_sizes, const py::object& out, const py::object& group,
                           const py::object& async_op) {
  at::Tensor tensor;
  Sizes send;
  AllToAllOptions options;
  return run(
      Collective::all_to_all_v, read_group(group), !recv_sizes.is_none(), tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        const auto given = read_sizes("send_sizes", send_sizes);
        if (!given) throw BadArgument("send_sizes is None: say how many rows go to each rank");
        send = *given;
        options = {.dim = read_integer("dim", dim),
                   .recv_sizes = read_sizes("recv_sizes", recv_sizes),
                   .out = read_optional_tensor("out", out),
                   .group = g};
      },
      [&] { return all_to_all_v(tensor, send, options); },
      [&] { return all_to_all_v_async(tensor, send, options); });
}

py::tuple gather_sizes_of(const py::object& x, const py::object& dim, const py::object& group_object) {
  at::Tensor tensor;
  GatherSizesOptions options{.group = read_group(group_object)};
  const std::string problem = problem_reading([&] {
    tensor = read_tensor("x", x);
    options.dim = read_integer("dim", dim);
  });
  Sizes sizes;
  {
    const py::gil_scoped_release release;
    if (!problem.empty())
      fail_together(Collective::gather_sizes, problem, options.group, /*sizes_known=*/false);
    sizes = gather_sizes(tensor, options);
  }
  return as_tuple(sizes);
}

py::object split_by_rank_of(const py::object& parts, const py::object& group_object) {
  const Group group = read_group(group_object);
  Ragged result;
  const std::string problem = problem_reading([&] {
    if (THPVariable_Check(parts.ptr())) {
      result = split_by_rank(read_tensor("parts", parts), group);
      return;
    }
    if (!py::isinstance<py::sequence>(parts))
      throw BadArgument("parts is neither a tensor nor a sequence of tensors");
    std::vector<at::Tensor> list;
    for (const py::handle& part : py::reinterpret_borrow<py::sequence>(parts)) {
      list.push_back(read_tensor(c10::str("parts[", list.size(), "]").c_str(), part));
    }
    result = split_by_rank(list, group);
  });
  if (!problem.empty()) raise("split_by_rank", problem, group.rank());
  return as_python(result);
}

// A handle of the same call, whose result is what `function` makes of that of `handle`, once.
Handle mapped_handle(const Handle& handle, const py::function& function) {
  auto mapped = std::make_shared<py::object>();
  auto wait = [wait = handle.wait, function, mapped] {
    const py::object result = wait();
    if (!*mapped) {
      py::object made = function(result);
      if (!*mapped) *mapped = std::move(made);  // another thread may have been faster
    }
    return *mapped;
  };
  return {.wait = std::move(wait), .is_completed = handle.is_completed};
}

// A function of the module that takes arguments by position alone. To find out which function is meant, and
// to convert its arguments, pybind11 takes longer than the calls of a few bytes themselves.
template <auto function, size_t... index>
PyObject* called(PyObject* const* arguments, std::index_sequence<index...> /*arguments*/) {
  try {
    return function(py::reinterpret_borrow<py::object>(arguments[index])...).release().ptr();
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
}

template <auto function, size_t count>
PyObject* called_with(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t given) {
  if (given == static_cast<Py_ssize_t>(count))
    return called<function>(arguments, std::make_index_sequence<count>());
  PyErr_Format(PyExc_TypeError, "%zu arguments are expected, not %zd", count, given);
  return nullptr;
}

template <auto function, size_t count>
PyMethodDef method(const char* name) {
  auto* const called = reinterpret_cast<void (*)()>(&called_with<function, count>);
  return {name, reinterpret_cast<PyCFunction>(called), METH_FASTCALL, nullptr};
}

void bind_plain_calls(py::module_& module) {
  static std::array<PyMethodDef, 5> methods = {
      method<&all_gather_v_of, 7>("all_gather_v"), method<&reduce_scatter_v_of, 7>("reduce_scatter_v"),
      method<&all_reduce_of, 6>("all_reduce"), method<&all_to_all_v_of, 7>("all_to_all_v"), PyMethodDef{}};
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

void bind_handle(py::module_& module) {
  py::class_<Handle> handle(module, "Handle");
  handle.attr("__module__") = "shardway";
  handle.def("wait", [](const Handle& self) { return self.wait(); });
  handle.def("is_completed", [](const Handle& self) {
    const py::gil_scoped_release release;
    return self.is_completed();
  });
  const py::object generic = py::module_::import("types").attr("GenericAlias");
  handle.attr("__class_getitem__") = py::module_::import("builtins").attr("classmethod")(generic);
  module.def("mapped_handle", &mapped_handle);
}

}  // namespace

void bind_collectives(py::module_& module) {
  bind_handle(module);
  bind_plain_calls(module);
  module.def("gather_sizes", &gather_sizes_of);
  module.def("split_by_rank", &split_by_rank_of);
}

}  // namespace shardway::python
