// The functions of shardway/redistribute.h that take many tensors at once: see python/shardway/_C.pyi.
#include <torch/csrc/utils/pybind.h>

#include <algorithm>

#include "arguments.h"
#include "bindings.h"
#include "bound_tensor.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/mesh/redistribution.h"
#include "shardway/redistribute.h"
#include "values.h"

namespace shardway::python {
namespace {

using GivenTensors = std::vector<MeshTensor>;

// What the caller gave, as far as it could be read.
struct Read {
  GivenTensors tensors = {};
  std::vector<Layout> targets = {};
  RedistributeListOptions options = {};
};

// A tensor that has the layout and the placements of the one before has the same target, which is read once.
void read_targets(const py::sequence& placements, const py::handle& mesh, Read& read) {
  for (size_t i = 0; i < read.tensors.size(); ++i) {
    const py::object given = placements[i];
    const Layout& from = read.tensors[i].layout();
    const bool is_as_before =
        i > 0 && given.is(py::object(placements[i - 1])) && from == read.tensors[i - 1].layout();
    read.targets.push_back(is_as_before ? read.targets.back()
                                        : read_target(from, given, mesh, nullptr, read.options.group));
  }
}

py::list list_of(GivenTensors tensors, const py::object& group) {
  py::list result(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    result[i] = py::cast(BoundTensor{.tensor = std::move(tensors[i]), .group = group});
  return result;
}

// Tensors of one group. A layout that several successive tensors share is looked at once.
GivenTensors tensors_of(const py::sequence& locals, const py::sequence& layouts, const Group& group) {
  GivenTensors tensors;
  tensors.reserve(locals.size());
  for (size_t i = 0; i < locals.size(); ++i) {
    const py::object local = locals[i];
    const at::Tensor tensor = local.is_none() ? at::Tensor() : local.cast<at::Tensor>();
    const py::object layout = layouts[i];
    if (i > 0 && layout.is(py::object(layouts[i - 1]))) {
      tensors.push_back(tensors.back().alike(tensor));
    } else {
      tensors.emplace_back(tensor, layout.cast<const Layout&>(), group);
    }
  }
  return tensors;
}

// The same; if a local does not fit its layout, tells the other ranks and throws.
GivenTensors tensors_or_refusal(const py::sequence& locals, const py::sequence& layouts, const Group& group) {
  try {
    return tensors_of(locals, layouts, group);
  } catch (const c10::ValueError& error) {
    std::string problem = error.what_without_backtrace();
    problem.resize(std::min(problem.rfind(" (rank "), problem.size()));  // the rank is told with the problem
    const py::gil_scoped_release release;
    const bool others_skip = named("redistribute", [&] { return skips_exchange(at::Tensor(), group); });
    fail_together(Collective::redistribute, problem, group, others_skip);
  }
}

py::list mesh_tensors_of(const py::sequence& locals, const py::sequence& layouts, const py::object& group) {
  const ReadGroup read = read_any_group(group, "redistribute");
  return list_of(tensors_or_refusal(locals, layouts, read.group), read.object);
}

// For a caller that cannot take part: the others compare before they move a list, unless it is on a device.
[[noreturn]] void refuse_list(const MeshTensor& tensor, const std::string& problem) {
  const py::gil_scoped_release release;
  fail_together(Collective::redistribute, problem, tensor.group(), knows_all(tensor), tensor.local());
}

// The copies of each tensor: None, or a list that has an entry per tensor.
void read_all_copies(const py::handle& copies, Read& read) {
  if (copies.is_none()) return;
  if (!py::isinstance<py::list>(copies) && !py::isinstance<py::tuple>(copies))
    throw BadArgument("copies is a " + type_name(copies) + ", but t is a list: pass a list, too");
  for (const py::handle& of_tensor : copies) read.options.copies.push_back(read_copies(of_tensor));
}

// The caller's tensors for the results: None, or a list that has an entry per tensor.
void read_outs(const py::handle& outs, Read& read) {
  if (outs.is_none()) return;
  if (!py::isinstance<py::list>(outs) && !py::isinstance<py::tuple>(outs))
    throw BadArgument("out is a " + type_name(outs) + ", but t is a list: pass a list, too");
  for (const py::handle& out : outs)
    read.options.outs.push_back(out.is_none() ? at::Tensor() : read_tensor("an entry of out", out));
  if (read.options.outs.empty()) throw BadArgument("out is an empty list");
}

// Reads a list that has as many placements as tensors.
Read read_given(GivenTensors tensors, const py::sequence& placements, const py::object& mesh,
                const py::object& topology, const py::object& max_bytes,
                const std::optional<Group>& living = std::nullopt, const py::object& copies = py::none(),
                const py::object& outs = py::none(), const py::object& relabel = py::none()) {
  Read read{.tensors = std::move(tensors)};
  read.options.group = living;
  const std::string problem = problem_reading([&] {
    read_all_copies(copies, read);
    read.options.relabel = read_relabel(relabel);
    read_outs(outs, read);
    read.options.topology = read_topology(topology);
    if (!max_bytes.is_none()) read.options.max_bytes = read_int("max_bytes", max_bytes);
    read_targets(placements, mesh, read);
  });
  if (!problem.empty() && living) refuse_in_group(*living, problem);
  if (!problem.empty()) refuse_list(read.tensors[0], problem);
  return read;
}

GivenTensors run_list(const Read& read) {
  const py::gil_scoped_release release;
  return redistribute(read.tensors, read.targets, read.options);
}

// Makes no Python MeshTensors: returns the parts, and the layout of each.
py::tuple redistribute_parts_of(const py::sequence& locals, const py::sequence& layouts,
                                const py::object& group, const py::sequence& placements,
                                const py::object& mesh, const py::object& topology,
                                const py::object& max_bytes) {
  const Group members = read_any_group(group, "redistribute").group;
  const GivenTensors results = run_list(
      read_given(tensors_or_refusal(locals, layouts, members), placements, mesh, topology, max_bytes));
  py::list parts(results.size());
  py::list targets(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& local = results[i].local();
    parts[i] = local.defined() ? py::cast(local) : py::none();
    const bool is_as_before = i > 0 && results[i].layout() == results[i - 1].layout();
    targets[i] = is_as_before ? py::object(targets[i - 1]) : py::cast(results[i].layout());
  }
  return py::make_tuple(parts, targets);
}

py::object redistribute_list_of(const py::sequence& tensors, const py::sequence& placements,
                                const py::object& mesh, const py::object& topology,
                                const py::object& max_bytes, const py::object& async_op,
                                const py::object& group, const py::object& copies, const py::object& out,
                                const py::object& relabel) {
  GivenTensors given;
  for (const py::handle& tensor : tensors) given.push_back(tensor.cast<const BoundTensor&>().tensor);
  const py::object first_object = tensors[0];
  const auto& first = first_object.cast<const BoundTensor&>();
  const auto [mover, living] = read_mover(first.group, group);
  bool is_async = false;
  const std::string problem = problem_reading([&] { is_async = read_flag("async_op", async_op); });
  if (!problem.empty() && living) refuse_in_group(*living, problem);
  if (!problem.empty()) refuse_list(first.tensor, problem);
  const Read read =
      read_given(std::move(given), placements, mesh, topology, max_bytes, living, copies, out, relabel);
  if (is_async) {
    const Async<GivenTensors> call = [&] {
      const py::gil_scoped_release release;
      return redistribute_async(read.tensors, read.targets, read.options);
    }();
    return py::cast(handle_of(
        call, [group = mover](GivenTensors results) { return list_of(std::move(results), group); }));
  }
  return list_of(run_list(read), mover);
}

py::tuple hear_layouts_of(const py::sequence& known, const py::object& group) {
  const Group members = read_any_group(group, "redistribute").group;
  std::vector<std::optional<Layout>> layouts;
  for (const py::handle& layout : known)
    layouts.push_back(layout.is_none() ? std::nullopt : std::optional(layout.cast<Layout>()));
  const HeardLayouts heard = [&] {
    const py::gil_scoped_release release;
    return hear_layouts(layouts, members);
  }();
  py::list heard_list(heard.layouts.size());
  for (size_t i = 0; i < heard.layouts.size(); ++i) {
    const bool is_as_before = i > 0 && heard.layouts[i] == heard.layouts[i - 1];
    heard_list[i] = is_as_before ? py::object(heard_list[i - 1]) : py::cast(heard.layouts[i]);
  }
  return py::make_tuple(heard.is_list, heard_list);
}

}  // namespace

void bind_redistribute_list(py::module_& module) {
  module.def("redistribute_list", &redistribute_list_of);
  module.def("hear_layouts", &hear_layouts_of);
  module.def("mesh_tensors", &mesh_tensors_of);
  module.def("redistribute_parts", &redistribute_parts_of);
  module.def("refuse_redistribute_list", [](const BoundTensor& first, const std::string& problem) {
    refuse_list(first.tensor, problem);
  });
}

}  // namespace shardway::python
