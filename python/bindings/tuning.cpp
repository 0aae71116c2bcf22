// The tuning of shardway/shm.h for Python.
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
