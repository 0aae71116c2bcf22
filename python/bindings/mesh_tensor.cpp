// shardway/mesh_tensor.h and shardway/redistribute.h for Python: see python/shardway/_C.pyi.
#include "shardway/mesh_tensor.h"

#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "bound_tensor.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/mesh/place.h"
#include "ops/mesh/prepared_plan.h"
#include "ops/mesh/redistribution.h"
#include "ops/mesh/survivors.h"
#include "shardway/redistribute.h"
#include "torch_dtype.h"
#include "values.h"

namespace shardway::python {
namespace {

// The rank of a part that was made where nothing is distributed: the program knows it, the tensor does not.
constexpr int64_t kUnknownRank = -1;

// Whether the mesh has ranks besides a lone process, which is rank 0. Such a part is for a link between jobs,
// which checks it.
bool needs_others(const at::Tensor& local, const Layout& layout) {
  return !local.defined() || layout.mesh().ranks() != std::vector<int64_t>{0};
}

BoundTensor make_tensor(const py::object& local, const py::object& layout, const py::object& group) {
  const ReadGroup read = read_any_group(group, "MeshTensor");
  at::Tensor tensor;
  std::optional<Layout> lies;
  const std::string problem = problem_reading([&] {
    tensor = read_local("local", local);
    lies = read_layout("layout", layout);
  });
  if (!problem.empty()) raise("MeshTensor", problem, read.group.global_ranks()[read.group.rank()]);
  if (read.object.is_none() && needs_others(tensor, *lies))
    return {.tensor = detached_part(tensor, *lies, kUnknownRank), .group = py::none()};
  return {.tensor = MeshTensor(tensor, *lies, read.group), .group = read.object};
}

// Returns the tensor that was pickled. It is in the default group if this process is that rank of it and the
// group covers the mesh; otherwise it has no group.
BoundTensor rebuilt(const py::object& local, const Layout& layout, int64_t rank) {
  const at::Tensor tensor = read_local("local", local);
  const ReadGroup read = read_any_group(py::none(), "MeshTensor");
  const std::vector<int64_t> numbers = read.group.global_ranks();
  const bool is_rank = numbers[static_cast<size_t>(read.group.rank())] == rank;
  const bool is_covered = problem_in([&] { GroupRanks(numbers).check_cover(layout.mesh()); }).empty();
  if (is_rank && is_covered) return {.tensor = MeshTensor(tensor, layout, read.group), .group = read.object};
  return {.tensor = detached_part(tensor, layout, rank), .group = py::none()};
}

py::object local_of(const BoundTensor& self) {
  return self.tensor.local().defined() ? py::cast(self.tensor.local()) : py::none();
}

py::object box_of(const BoundTensor& self) {
  const auto box = self.tensor.box();
  if (!box) return py::none();
  return py::make_tuple(tuple_of<int64_t>(box->offset), tuple_of<int64_t>(box->extent));
}

py::object shape_of(const BoundTensor& self) {
  return py::module_::import("torch").attr("Size")(tuple_of(self.tensor.layout().shape()));
}

struct GivenTarget {
  std::optional<Layout> layout = std::nullopt;
  RedistributeOptions options = {};
};

GivenTarget read_request(const Layout& from, const py::handle& placements, const py::handle& mesh,
                         const py::handle& topology, const py::handle& max_bytes, const py::handle& plan,
                         const py::handle& grad_placements, const std::optional<Group>& living,
                         const py::handle& copies, const py::handle& relabel) {
  GivenTarget target;
  RedistributeOptions& options = target.options;
  options.relabel = read_relabel(relabel);
  options.group = living;
  options.copies = read_copies(copies);
  if (!plan.is_none()) {
    if (!py::isinstance<Plan>(plan)) throw BadArgument("plan=" + text_of(plan) + " is not a Plan");
    options.plan = plan.cast<std::shared_ptr<Plan>>();
  }
  options.topology = read_topology(topology);
  if (!max_bytes.is_none()) options.max_bytes = read_int("max_bytes", max_bytes);
  if (!grad_placements.is_none()) options.grad_placements = read_placements(grad_placements, from.ndim());
  target.layout = read_target(from, placements, mesh, options.plan, living);
  return target;
}

// For a caller that cannot take part: raises its problem on every rank of the tensor's group that compares.
[[noreturn]] void refuse_for(const BoundTensor& self, const std::string& problem) {
  const py::gil_scoped_release release;
  const Group& group = self.tensor.group();
  const bool others_skip = is_everywhere(self.tensor.layout(), group) || knows_all(self.tensor);
  fail_together(Collective::redistribute, problem, group, others_skip, self.tensor.local());
}

// The same for a caller that has no tensor.
[[noreturn]] void refuse_in(const py::object& group, const std::string& problem) {
  const Group waiting = read_any_group(group, "redistribute").group;
  const py::gil_scoped_release release;
  const bool others_skip = named("redistribute", [&] { return skips_exchange(at::Tensor(), waiting); });
  fail_together(Collective::redistribute, problem, waiting, others_skip);
}

py::object redistribute_of(const BoundTensor& self, const py::object& placements, const py::object& mesh,
                           const py::object& topology, const py::object& max_bytes, const py::object& plan,
                           const py::object& grad_placements, const py::object& async_op,
                           const py::object& group, const py::object& copies, const py::object& relabel) {
  const auto [mover, living] = read_mover(self.group, group);
  GivenTarget target;
  bool is_async = false;
  const std::string problem = problem_reading([&] {
    target = read_request(self.tensor.layout(), placements, mesh, topology, max_bytes, plan, grad_placements,
                          living, copies, relabel);
    is_async = read_flag("async_op", async_op);
  });
  if (!problem.empty() && living) refuse_in_group(*living, problem);
  if (!problem.empty()) refuse_for(self, problem);
  if (is_async) {
    const Async<MeshTensor> call = [&] {
      const py::gil_scoped_release release;
      return redistribute_async(self.tensor, *target.layout, target.options);
    }();
    return py::cast(handle_of(call, [group = mover](MeshTensor result) {
      return py::cast(BoundTensor{.tensor = std::move(result), .group = group});
    }));
  }
  MeshTensor result = [&] {
    const py::gil_scoped_release release;
    return redistribute(self.tensor, *target.layout, target.options);
  }();
  return py::cast(BoundTensor{.tensor = std::move(result), .group = mover});
}

BoundTensor distribute_of(const py::object& tensor, const py::object& mesh, const py::object& placements,
                          const py::object& src, const py::object& group) {
  const ReadGroup read = read_any_group(group, "distribute");
  const bool from_all = src.is_none();
  DistributeOptions options{.group = read.group};
  at::Tensor whole;
  std::optional<Mesh> target;
  std::vector<Placement> places;
  const std::string problem = problem_reading([&] {
    if (!from_all) options.src = read_int("src", src);
    const int64_t number = read.group.global_ranks()[static_cast<size_t>(read.group.rank())];
    if (!options.src || *options.src == number) whole = read_tensor("tensor", tensor);
    target = read_mesh(mesh);
    places = read_placements(placements, /*ndim=*/0);  // so far only the source knows ndim
  });
  MeshTensor result = [&] {
    const py::gil_scoped_release release;
    const auto collective = from_all ? Collective::redistribute : Collective::distribute;
    if (!problem.empty()) fail_together(collective, problem, read.group, /*sizes_known=*/from_all);
    return distribute(whole, *target, places, options);
  }();
  return {.tensor = std::move(result), .group = read.object};
}

py::object full_of(const BoundTensor& self) {
  const at::Tensor whole = [&] {
    const py::gil_scoped_release release;
    return self.tensor.full();
  }();
  return whole.defined() ? py::cast(whole) : py::none();
}

// A function of shardway._dtensor_redistribute, which is loaded when the first DTensor is read.
py::object dtensor_function(const char* name) {
  return py::module_::import("shardway._dtensor_redistribute").attr(name);
}

void backward_of(const BoundTensor& self, const py::object& gradient) {
  const std::optional<at::Tensor> given = read_optional_tensor("gradient", gradient);
  const py::gil_scoped_release release;
  self.tensor.backward(given);
}

}  // namespace

Layout read_target(const Layout& from, const py::handle& placements, const py::handle& mesh,
                   const std::shared_ptr<const Plan>& plan, const std::optional<Group>& living) {
  if (placements.is_none() && plan) return plan->to;
  if (placements.is_none()) throw BadArgument("placements is None, and no plan is given");
  if (py::isinstance<Layout>(placements)) {
    if (!mesh.is_none()) throw BadArgument("mesh is given, but placements is a Layout, which has its own");
    return placements.cast<Layout>();
  }
  if (py::isinstance<Mesh>(placements) || py::hasattr(placements, "mesh_dim_names"))
    throw BadArgument("placements is a " + type_name(placements) + ": did you mean mesh=?");
  return from.with(mesh.is_none() ? mesh_of_living(from.mesh(), living) : read_mesh(mesh),
                   read_placements(placements, from.ndim()));
}

Mover read_mover(const py::object& own, const py::object& given) {
  if (given.is_none()) return {.object = own, .living = std::nullopt};
  const ReadGroup read = read_any_group(given, "redistribute");
  return {.object = read.object, .living = read.group};
}

std::vector<MeshTensor> read_copies(const py::handle& value) {
  if (value.is_none()) return {};
  if (py::isinstance<BoundTensor>(value)) return {value.cast<const BoundTensor&>().tensor};
  std::vector<MeshTensor> copies;
  if (!py::isinstance<py::list>(value) && !py::isinstance<py::tuple>(value))
    throw BadArgument("copies is a " + type_name(value) + ", not a MeshTensor or a list of them");
  for (const py::handle& copy : value) {
    if (!py::isinstance<BoundTensor>(copy))
      throw BadArgument("copies has a " + type_name(copy) + ", which is not a MeshTensor");
    copies.push_back(copy.cast<const BoundTensor&>().tensor);
  }
  return copies;
}

void refuse_in_group(const Group& group, const std::string& problem) {
  const py::gil_scoped_release release;
  fail_together(Collective::redistribute, problem, group, /*sizes_known=*/false);
}

std::optional<Relabel> read_relabel(const py::handle& value) {
  if (value.is_none() || value.is(py::bool_(false))) return std::nullopt;
  if (value.is(py::bool_(true))) return Relabel{};
  Relabel relabel{.among = read_ints("relabel", value)};
  if (relabel.among.empty()) throw std::invalid_argument("relabel names no ranks");
  return relabel;
}

std::optional<Topology> read_topology(const py::handle& value) {
  if (value.is_none()) return std::nullopt;
  if (!py::isinstance<Topology>(value))
    throw BadArgument("topology=" + text_of(value) + " is not a Topology");
  return value.cast<Topology>();
}

void bind_mesh_tensor(py::module_& module) {
  py::class_<BoundTensor> tensor(module, "MeshTensor",
                                 "What this rank holds of a tensor, and how the tensor lies on its mesh.");
  tensor.attr("__module__") = "shardway";
  tensor.def(py::init(&make_tensor), py::arg("local"), py::arg("layout"), py::arg("group") = py::none())
      .def_property_readonly("local", &local_of)
      .def_property_readonly("layout", [](const BoundTensor& self) { return self.tensor.layout(); })
      .def_readonly("group", &BoundTensor::group)
      .def_property_readonly("rank", [](const BoundTensor& self) { return self.tensor.rank(); })
      .def_property_readonly("box", &box_of)
      .def_property_readonly("shape", &shape_of)
      .def_property_readonly(
          "dtype", [](const BoundTensor& self) { return torch_dtype(self.tensor.layout().dtype()); })
      .def("full", &full_of)
      .def("backward", &backward_of, py::arg("gradient") = py::none())
      .def_static(
          "from_dtensor",
          [](const py::object& value, const py::object& group) {
            return dtensor_function("mesh_tensor_of")(value, group);
          },
          py::arg("dtensor"), py::arg("group") = py::none())
      .def(
          "to_dtensor",
          [](const py::object& self, const py::object& device_mesh) {
            return dtensor_function("dtensor_of")(self, device_mesh);
          },
          py::arg("device_mesh"))
      .def("__reduce__",
           [](const BoundTensor& self) {
             return py::make_tuple(py::module_::import("shardway._C").attr("_rebuilt_mesh_tensor"),
                                   py::make_tuple(local_of(self), self.tensor.layout(), self.tensor.rank()));
           })
      .def("__repr__", [](const BoundTensor& self) { return "MeshTensor(" + to_string(self.tensor) + ")"; });
  module.def("_rebuilt_mesh_tensor", &rebuilt);
  module.def("redistribute", &redistribute_of);
  module.def("refuse_redistribute", &refuse_for);
  module.def("refuse_redistribute_in", &refuse_in);
  module.def("distribute", &distribute_of);
}

}  // namespace shardway::python
