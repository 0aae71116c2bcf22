// The backend for torch.distributed.
#include "backend/backend.h"

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "bindings.h"
#include "hosts_backend/hosts_backend.h"
#include "transport/c10d/virtual_group.h"
#include "transport/group/process_group.h"
#include "transport/group/survivors.h"

namespace shardway::python {
namespace {

using backend::Backend;
using backend::Options;

c10::intrusive_ptr<Backend> on_one_host(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                        const c10::intrusive_ptr<Options>& options, const Survivors* met) {
  return c10::make_intrusive<Backend>(store, rank, size, options, met != nullptr ? met->engine() : nullptr);
}

void bind_survivors(pybind11::module_& module) {
  using WithoutGil = pybind11::call_guard<pybind11::gil_scoped_release>;
  pybind11::class_<Survivors>(module, "Survivors")
      .def_property_readonly("rank", &Survivors::rank)
      .def_property_readonly("id", &Survivors::id)
      .def_property_readonly("members", &Survivors::members)
      .def("told", &Survivors::told, pybind11::arg("mine"), WithoutGil())
      .def("shrunk", &Survivors::shrunk, pybind11::arg("timeout"), WithoutGil())
      .def("serve", &Survivors::serve, pybind11::arg("group"));
  module.def("survivors_of", &Survivors::of, pybind11::arg("group"), pybind11::arg("timeout"), WithoutGil());
  module.def("end_for_shrink", &end_for_shrink, pybind11::arg("group"), WithoutGil());
  module.def("gone_ranks", &gone_ranks, pybind11::arg("group"), WithoutGil());
}

}  // namespace

void bind_backend(pybind11::module_& module) {
  pybind11::module_::import("torch.distributed");  // defines the base classes
  bind_survivors(module);
  pybind11::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "BackendOptions")
      .def(pybind11::init<std::chrono::milliseconds>(), pybind11::arg("timeout") = kBackendDefaultTimeout);
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "ProcessGroupShardway")
      .def(pybind11::init(&on_one_host), pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
           pybind11::arg("options"), pybind11::arg("met") = nullptr,
           pybind11::call_guard<pybind11::gil_scoped_release>())
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("get_error", &Backend::getError);
  module.def("make_backend", &backend::make_backend, pybind11::arg("store"), pybind11::arg("rank"),
             pybind11::arg("size"), pybind11::arg("options"), pybind11::arg("make_gloo"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("disown_group", &disown, pybind11::arg("group"));
  module.def(
      "has_engine", [](const c10::intrusive_ptr<c10d::ProcessGroup>& group) { return !is_virtual(*group); },
      pybind11::arg("group"));
}

}  // namespace shardway::python
