// shardway/prepare.h for Python: see python/shardway/_C.pyi.
#include "shardway/prepare.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "ops/call/capture.h"
#include "values.h"

namespace shardway::python {
namespace {

void run_with(PreparedCall& self, const py::object& inputs) {
  std::vector<at::Tensor> tensors;
  if (!inputs.is_none()) {
    for (const py::handle& x : py::reinterpret_borrow<py::sequence>(inputs))
      tensors.push_back(x.is_none() ? at::Tensor() : x.cast<at::Tensor>());
  }
  const py::gil_scoped_release release;
  self.run(tensors);
}

// Names the capsules that hold what a function needs.
constexpr const char* kCall = "shardway.KeptCall";

PyObject* run_as_prepared(PyObject* capsule, PyObject* /*nothing*/) {
  auto* call = static_cast<PreparedCall*>(PyCapsule_GetPointer(capsule, kCall));
  try {
    const py::gil_scoped_release release;
    call->run();
  } catch (...) {
    py::detail::try_translate_exceptions();
    return nullptr;
  }
  Py_RETURN_NONE;
}

// A function that runs the call with the tensors that it has. pybind11 would take longer to call one than a
// run of a few bytes takes.
py::object repeat_of(const PreparedCall& self) {
  static PyMethodDef method = {"repeat", &run_as_prepared, METH_NOARGS, nullptr};
  const py::capsule call(new PreparedCall(self), kCall,
                         [](void* held) { delete static_cast<PreparedCall*>(held); });
  return py::reinterpret_steal<py::object>(PyCFunction_New(&method, call.ptr()));
}

py::tuple sent_of(const PreparedCall& self) {
  return self.distributed() ? rows_of(self.bytes()) : py::make_tuple(py::make_tuple(0));
}

PreparedCall finish(Preparation& self) {
  const py::gil_scoped_release release;
  return self.finish();
}

}  // namespace

py::tuple rows_of(const RunBytes& bytes) {
  py::tuple rows(static_cast<size_t>(bytes.ranks));
  for (int64_t from = 0; from < bytes.ranks; ++from) {
    const auto begin = bytes.sent.begin() + from * bytes.ranks;
    rows[static_cast<size_t>(from)] = tuple_of(std::vector<int64_t>(begin, begin + bytes.ranks));
  }
  return rows;
}

void bind_prepare(py::module_& module) {
  py::class_<PreparedCall>(module, "KeptCall", "A call that can be made again.")
      .def("run", &run_with, py::arg("inputs") = py::none())
      .def_property_readonly("repeat", &repeat_of)
      .def(
          "refuse",
          [](PreparedCall& self, const std::string& problem) {
            const py::gil_scoped_release release;
            self.refuse(problem);
          },
          py::arg("problem"))
      .def("keep_ready", &PreparedCall::keep_ready, py::arg("sets"))
      .def("fix", &PreparedCall::fix, py::call_guard<py::gil_scoped_release>())
      .def("close", &PreparedCall::close)
      .def("explain", &PreparedCall::explain)
      .def_property_readonly("distributed", &PreparedCall::distributed)
      .def_property_readonly("exchanges", [](const PreparedCall& self) { return self.bytes().exchanges; })
      .def_property_readonly("sent", &sent_of)
      .def_property_readonly("least", [](const PreparedCall& self) { return tuple_of(self.bytes().least); })
      .def_property_readonly("busiest_rank",
                             [](const PreparedCall& self) { return self.bytes().busiest_rank(); });
  py::class_<Preparation>(module, "Preparation", "While it lives, the next call of this thread is prepared.")
      .def(py::init<>())
      .def("finish", &finish)
      .def("cancel", &Preparation::cancel);
  module.def("is_preparing", [] { return Capture::current() != nullptr; });
}

}  // namespace shardway::python
