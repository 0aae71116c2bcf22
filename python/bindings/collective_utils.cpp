// shardway/collective_utils.h for Python, which uses it through python/shardway/compat/collective_utils.py.
#include "shardway/collective_utils.h"

#include <pybind11/stl.h>

#include <stdexcept>

#include "bindings.h"
#include "values.h"

namespace shardway::python {
namespace {

using collective_utils::MeshTopoInfo;

MeshTopoInfo make_topo(const std::vector<int64_t>& devices, const std::vector<double>& bandwidth,
                       const std::vector<double>& latency) {
  if (devices.size() != bandwidth.size() || devices.size() != latency.size()) {
    throw std::invalid_argument(
        "mesh topology: " + std::to_string(devices.size()) + " devices, " + std::to_string(bandwidth.size()) +
        " bandwidths and " + std::to_string(latency.size()) + " latencies; each mesh dim needs one of each");
  }
  return {.mesh_dim_devices = devices, .mesh_dim_bandwidth = bandwidth, .mesh_dim_latency = latency};
}

// A negative dim counts from the end, as in a Python list.
int64_t checked_dim(const MeshTopoInfo& topo, int64_t mesh_dim) {
  const auto ndim = static_cast<int64_t>(topo.mesh_dim_devices.size());
  if (mesh_dim < -ndim || mesh_dim >= ndim) {
    throw std::invalid_argument("mesh_dim=" + std::to_string(mesh_dim) + " is out of range for a " +
                                std::to_string(ndim) + "-d mesh");
  }
  return mesh_dim < 0 ? mesh_dim + ndim : mesh_dim;
}

void check_topo(const MeshTopoInfo& topo, const Layout& layout) {
  if (topo.mesh_dim_devices == layout.mesh().shape()) return;
  throw std::invalid_argument("mesh topology: it is of another mesh than " + to_string(layout.mesh()));
}

}  // namespace

void bind_collective_utils(py::module_& module) {
  py::class_<MeshTopoInfo>(module, "MeshTopoInfo",
                           "Per mesh dim its ranks, GiB/s and latency in microseconds.")
      .def(py::init(&make_topo), py::arg("mesh_dim_devices"), py::arg("mesh_dim_bandwidth"),
           py::arg("mesh_dim_latency"))
      .def_static("build_from_mesh", py::overload_cast<const Mesh&, int64_t>(&MeshTopoInfo::build_from_mesh),
                  py::arg("mesh"), py::arg("devices_per_host"))
      .def_static("build_from_mesh",
                  py::overload_cast<const Mesh&, const Topology&>(&MeshTopoInfo::build_from_mesh),
                  py::arg("mesh"), py::arg("topology"))
      .def_readonly("mesh_dim_devices", &MeshTopoInfo::mesh_dim_devices)
      .def_readonly("mesh_dim_bandwidth", &MeshTopoInfo::mesh_dim_bandwidth)
      .def_readonly("mesh_dim_latency", &MeshTopoInfo::mesh_dim_latency)
      .def(
          "allgather_cost",
          [](const MeshTopoInfo& topo, double bytes_gb, int64_t dim) {
            return collective_utils::allgather_cost(bytes_gb, topo, checked_dim(topo, dim));
          },
          py::arg("bytes_gb"), py::arg("mesh_dim"))
      .def(
          "reduce_scatter_cost",
          [](const MeshTopoInfo& topo, double bytes_gb, int64_t dim) {
            return collective_utils::reduce_scatter_cost(bytes_gb, topo, checked_dim(topo, dim));
          },
          py::arg("bytes_gb"), py::arg("mesh_dim"))
      .def(
          "allreduce_cost",
          [](const MeshTopoInfo& topo, double bytes_gb, int64_t dim, const std::string& rules) {
            return collective_utils::allreduce_cost(bytes_gb, topo, checked_dim(topo, dim),
                                                    rules_from_name(rules));
          },
          py::arg("bytes_gb"), py::arg("mesh_dim"), py::arg("rules"))
      .def(
          "redistribute_cost",
          [](const MeshTopoInfo& topo, const Layout& a, const Layout& b, const std::string& rules) {
            check_topo(topo, a);
            return collective_utils::redistribute_cost(a, b, topo, rules_from_name(rules));
          },
          py::arg("a"), py::arg("b"), py::arg("rules"))
      .def(
          "one_step_cost",
          [](const MeshTopoInfo& topo, const Layout& a, const Layout& b) {
            check_topo(topo, a);
            return collective_utils::one_step_cost(a, b, topo);
          },
          py::arg("a"), py::arg("b"))
      .def(
          "min_cost_layouts",
          [](const MeshTopoInfo& topo, const Layout& a, const Layout& b) {
            check_topo(topo, a);
            return collective_utils::min_cost_layouts(a, b, topo);
          },
          py::arg("a"), py::arg("b"));
  module.def("greedy_layouts", &collective_utils::greedy_layouts, py::arg("a"), py::arg("b"));
  module.def("spec_to_bytes", &collective_utils::spec_to_bytes, py::arg("layout"));
}

}  // namespace shardway::python
