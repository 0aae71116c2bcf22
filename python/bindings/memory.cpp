// shardway/memory.h for Python.
#include "shardway/memory.h"

#include <torch/csrc/utils/pybind.h>

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
    result["shared_in_use_bytes"] = stats.shared_in_use_bytes;
    result["shared_bytes"] = stats.shared_bytes;
    return result;
  });
  module.def("empty_cache", &empty_cache);
  module.def("empty", [](const std::vector<int64_t>& shape, at::ScalarType dtype) {
    for (const int64_t size : shape)
      TORCH_CHECK_VALUE(size >= 0, "empty: a tensor cannot have the negative size ", size);
    return empty(shape, dtype);
  });
  module.def("use_shared_allocator", &use_shared_allocator);
}

}  // namespace shardway::python
