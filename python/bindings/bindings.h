// One function per public header: it adds that header's names to the module.
#pragma once

#include <pybind11/pybind11.h>

namespace shardway::python {

void bind_backend(pybind11::module_& module);
void bind_collective_utils(pybind11::module_& module);
void bind_collectives(pybind11::module_& module);
void bind_layout(pybind11::module_& module);
void bind_job_link(pybind11::module_& module);
void bind_lists(pybind11::module_& module);
void bind_memory(pybind11::module_& module);
void bind_mesh_collectives(pybind11::module_& module);
void bind_mesh_tensor(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_prepare(pybind11::module_& module);
void bind_redistribute_list(pybind11::module_& module);
void bind_rooted(pybind11::module_& module);
void bind_topology(pybind11::module_& module);
void bind_tuning(pybind11::module_& module);
void bind_last_calls(pybind11::module_& module);

}  // namespace shardway::python
