// shardway/memory.h for Python, and the tuning of shardway/shm.h.
#include "shardway/memory.h"

#include <torch/csrc/utils/pybind.h>

#include "bindings.h"
#include "shardway/shm.h"

namespace shardway::python {
namespace {

pybind11::dict dict_of(const TunedGroups& groups) {
  pybind11::dict result;
  result["ranks"] = groups.ranks;
  result["groups"] = groups.groups;
  result["processor"] = groups.processor;
  result["shares_cache"] = groups.shares_cache;
  result["swap"] = groups.swap;
  result["swap_from"] = groups.swap_from;
  result["hand_back"] = groups.hand_back;
  result["hand_back_from"] = groups.hand_back_from;
  return result;
}

}  // namespace

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

void bind_tuning(pybind11::module_& module) {
  module.def("tuning_stats", [] {
    const TuningStats stats = tuning_stats();
    pybind11::list groups;
    for (const TunedGroups& alike : stats.groups) groups.append(dict_of(alike));
    pybind11::dict result;
    result["processor"] = stats.processor;
    result["groups"] = groups;
    return result;
  });
}

}  // namespace shardway::python
