// shardway/memory.h for Python.
#include "shardway/memory.h"

#include "bindings.h"

namespace shardway::python {

void bind_memory(pybind11::module_& module) {
  module.def("memory_stats", [] {
    const MemoryStats stats = memory_stats();
    pybind11::dict result;
    result["in_use_bytes"] = stats.in_use_bytes;
    result["cached_bytes"] = stats.cached_bytes;
    result["limit_bytes"] = stats.limit_bytes;
    result["reused"] = stats.reused;
    result["fresh"] = stats.fresh;
    return result;
  });
  module.def("empty_cache", &empty_cache);
}

}  // namespace shardway::python
