// The contract suite for Python: names() and run(name, process_group). For tests only.
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "contract.h"
#include "shardway/group.h"

namespace py = pybind11;

PYBIND11_MODULE(shardway_contract, m) {
  m.def("names", [] {
    std::vector<std::string> names;
    for (const auto& check : shardway::testing::transport_contract()) names.push_back(check.name);
    return names;
  });
  m.def(
      "run",
      [](const std::string& name, const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
        shardway::testing::check_named(name).run(shardway::Group(group));
      },
      py::call_guard<py::gil_scoped_release>());
}
