#include "bindings.h"
#include "shardway/version.h"

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = shardway::version();
  shardway::python::bind_collectives(module);
  shardway::python::bind_rooted(module);
  shardway::python::bind_lists(module);
  shardway::python::bind_memory(module);
  shardway::python::bind_tuning(module);
  shardway::python::bind_last_calls(module);
  shardway::python::bind_layout(module);
  shardway::python::bind_topology(module);
  shardway::python::bind_plan(module);
  shardway::python::bind_collective_utils(module);
  shardway::python::bind_mesh_collectives(module);
  shardway::python::bind_mesh_tensor(module);
  shardway::python::bind_redistribute_list(module);
  shardway::python::bind_backend(module);
  shardway::python::bind_interrupt();
}
