// The process that holds a link, for Python.
#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "link/hub/hub.h"

namespace shardway::python {

void bind_link_hub(pybind11::module_& module) {
  using link::LinkHub;
  pybind11::class_<LinkHub>(module, "LinkHub")
      .def(pybind11::init([](int listener, const pybind11::bytes& secret, const std::string& holder) {
             return std::make_unique<LinkHub>(shm::File(listener), std::string(secret), holder);
           }),
           pybind11::arg("listener"), pybind11::arg("secret"), pybind11::arg("holder"))
      .def("close", &LinkHub::close, pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace shardway::python
