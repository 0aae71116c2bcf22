// The backend for torch.distributed.
#include "backend/backend.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "bindings.h"
#include "transport/c10d/virtual_group.h"
#include "transport/group/process_group.h"

namespace shardway::python {
namespace {

using backend::Backend;
using backend::Options;

c10::intrusive_ptr<Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         const c10::intrusive_ptr<Options>& options) {
  return c10::make_intrusive<Backend>(store, rank, size, options);
}

}  // namespace

void bind_backend(pybind11::module_& module) {
  pybind11::module_::import("torch.distributed");  // defines the base classes
  pybind11::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "BackendOptions")
      .def(pybind11::init<std::chrono::milliseconds>(), pybind11::arg("timeout") = kBackendDefaultTimeout);
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "ProcessGroupShardway")
      .def(pybind11::init(&make_backend), pybind11::arg("store"), pybind11::arg("rank"),
           pybind11::arg("size"), pybind11::arg("options"),
           pybind11::call_guard<pybind11::gil_scoped_release>())
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("get_error", &Backend::getError);
  module.def("disown_group", &disown, pybind11::arg("group"));
  module.def(
      "has_engine", [](const c10::intrusive_ptr<c10d::ProcessGroup>& group) { return !is_virtual(*group); },
      pybind11::arg("group"));
}

}  // namespace shardway::python
