// Many tensors at once, of shardway/redistribute.h: see python/shardway/_C.pyi.
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "bound_tensor.h"
#include "ops/header.h"
#include "ops/redistribution.h"
#include "shardway/redistribute.h"
#include "values.h"

namespace shardway::python {
namespace {

using Tensors = std::vector<MeshTensor>;

struct BoundListHandle {
  Async<Tensors> call;
  py::object group;
};

// What the caller gave, as far as it could be read.
struct Read {
  Tensors tensors = {};
  std::vector<Layout> targets = {};
  RedistributeListOptions options = {};
};

// Tensors that lie alike and go to the same placements are alike in their targets too.
void read_targets(const py::sequence& placements, const py::handle& mesh, Read& read) {
  for (size_t i = 0; i < read.tensors.size(); ++i) {
    const py::object given = placements[i];
    const Layout& from = read.tensors[i].layout();
    const bool is_as_before =
        i > 0 && given.is(py::object(placements[i - 1])) && from == read.tensors[i - 1].layout();
    read.targets.push_back(is_as_before ? read.targets.back() : read_target(from, given, mesh, nullptr));
  }
}

py::list list_of(Tensors tensors, const py::object& group) {
  py::list result(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    result[i] = py::cast(BoundTensor{.tensor = std::move(tensors[i]), .group = group});
  return result;
}

// Tensors of one group, which is looked at once.
py::list mesh_tensors_of(const py::sequence& locals, const py::sequence& layouts, const py::object& group) {
  const ReadGroup read = read_any_group(group, "redistribute");
  Tensors tensors;
  for (size_t i = 0; i < locals.size(); ++i) {
    const py::object local = locals[i];
    const at::Tensor tensor = local.is_none() ? at::Tensor() : local.cast<at::Tensor>();
    tensors.emplace_back(tensor, py::object(layouts[i]).cast<const Layout&>(), read.group);
  }
  return list_of(std::move(tensors), read.object);
}

// For a caller that cannot take part: the others compare before they move a list, unless it is on a device.
[[noreturn]] void refuse_list(const BoundTensor& first, const std::string& problem) {
  const py::gil_scoped_release release;
  const MeshTensor& tensor = first.tensor;
  fail_together(Collective::redistribute, problem, tensor.group(), knows_all(tensor), tensor.local());
}

// A list whose placements are as many as its tensors, all of them MeshTensors.
py::object redistribute_list_of(const py::sequence& tensors, const py::sequence& placements,
                                const py::object& mesh, const py::object& topology,
                                const py::object& max_bytes, bool async_op) {
  Read read;
  for (const py::handle& tensor : tensors) read.tensors.push_back(tensor.cast<const BoundTensor&>().tensor);
  const auto& first = py::object(tensors[0]).cast<const BoundTensor&>();
  const std::string problem = problem_reading([&] {
    read.options.topology = read_topology(topology);
    if (!max_bytes.is_none()) read.options.max_bytes = read_int("max_bytes", max_bytes);
    read_targets(placements, mesh, read);
  });
  if (!problem.empty()) refuse_list(first, problem);
  if (async_op) {
    auto call = [&] {
      const py::gil_scoped_release release;
      return redistribute_async(read.tensors, read.targets, read.options);
    }();
    return py::cast(BoundListHandle{.call = std::move(call), .group = first.group});
  }
  Tensors results = [&] {
    const py::gil_scoped_release release;
    return redistribute(read.tensors, read.targets, read.options);
  }();
  return list_of(std::move(results), first.group);
}

}  // namespace

void bind_redistribute_list(py::module_& module) {
  py::class_<BoundListHandle> handle(module, "MeshTensorListHandle", "A call under way.");
  handle.attr("__module__") = "shardway";
  handle.def("wait", [](const BoundListHandle& self) {
    Tensors results = [&] {
      const py::gil_scoped_release release;
      return self.call.wait();
    }();
    return list_of(std::move(results), self.group);
  });
  module.def("redistribute_list", &redistribute_list_of);
  module.def("mesh_tensors", &mesh_tensors_of);
  module.def("refuse_redistribute_list", &refuse_list);
}

}  // namespace shardway::python
