// One function per public header: it adds that header's names to the module.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace shardway::python {

void bind_collectives(pybind11::module_& module);
void bind_memory(pybind11::module_& module);

}  // namespace shardway::python
