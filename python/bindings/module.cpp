#include "bindings.h"
#include "shardway/version.h"

PYBIND11_MODULE(_C, module) {
  module.attr("__version__") = shardway::version();
  shardway::python::bind_collectives(module);
  shardway::python::bind_memory(module);
}
