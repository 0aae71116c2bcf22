// shardway/mesh_collectives.h for Python, which uses it through python/shardway/compat/collective_utils.py.
#include "shardway/mesh_collectives.h"

#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "arguments.h"
#include "bindings.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "values.h"

namespace shardway::python {
namespace {

std::vector<at::Tensor> read_tensors(const char* name, const py::handle& value) {
  if (!py::isinstance<py::sequence>(value))
    throw BadArgument(c10::str(name, " is a ", type_name(value), ", not a sequence of tensors"));
  std::vector<at::Tensor> tensors;
  for (const py::handle& item : py::reinterpret_borrow<py::sequence>(value))
    tensors.push_back(read_tensor(c10::str(name, "[", tensors.size(), "]").c_str(), item));
  return tensors;
}

// Reads the arguments, and runs the call without the interpreter's lock. An argument that cannot be read is
// reported to all ranks.
template <class Read, class Run>
auto reading(Collective collective, const Group& group, const Read& read, const Run& run) {
  const std::string problem = problem_reading(read);
  const py::gil_scoped_release release;
  if (!problem.empty()) fail_together(collective, problem, group, /*sizes_known=*/false);
  return run();
}

py::object shard_dim_alltoall_of(const py::object& input, const py::object& gather_dim,
                                 const py::object& shard_dim, const Mesh& mesh, int64_t mesh_dim,
                                 const py::object& group_object, bool async_op) {
  const Group group = read_any_group(group_object, "shard_dim_alltoall").group;
  at::Tensor x;
  int64_t from = 0;
  int64_t to = 0;
  const auto read = [&] {
    x = read_local("input", input);
    from = read_integer("gather_dim", gather_dim);
    to = read_integer("shard_dim", shard_dim);
  };
  if (async_op) {
    return py::cast(handle_of(reading(Collective::shard_dim_alltoall, group, read, [&] {
      return collective_utils::shard_dim_alltoall_async(x, from, to, mesh, mesh_dim, group);
    })));
  }
  return py::cast(reading(Collective::shard_dim_alltoall, group, read, [&] {
    return collective_utils::shard_dim_alltoall(x, from, to, mesh, mesh_dim, group);
  }));
}

py::object as_python(const c10::intrusive_ptr<c10d::Work>& work) {
  return work ? py::cast(work) : py::none();
}

collective_utils::MeshOptions options_of(const char* op, int64_t mesh_dim, bool async_op,
                                         const py::object& group) {
  return {.mesh_dim = mesh_dim, .async_op = async_op, .group = read_any_group(group, op).group};
}

py::object mesh_scatter_of(const py::object& output, const py::object& scatter_list, const Mesh& mesh,
                           int64_t mesh_dim, bool async_op, const py::object& group_src,
                           const py::object& group) {
  collective_utils::MeshOptions options = options_of("mesh_scatter", mesh_dim, async_op, group);
  at::Tensor tensor;
  std::vector<at::Tensor> list;
  return as_python(reading(
      Collective::mesh_scatter, options.group,
      [&] {
        options.group_src = read_integer("group_src", group_src);
        tensor = read_local("output", output);
        if (!scatter_list.is_none()) list = read_tensors("scatter_list", scatter_list);
      },
      [&] { return collective_utils::mesh_scatter(tensor, list, mesh, options); }));
}

py::object mesh_broadcast_of(const py::object& tensor_object, const Mesh& mesh, int64_t mesh_dim,
                             bool async_op, const py::object& group_src, const py::object& group) {
  collective_utils::MeshOptions options = options_of("mesh_broadcast", mesh_dim, async_op, group);
  at::Tensor tensor;
  return as_python(reading(
      Collective::mesh_broadcast, options.group,
      [&] {
        options.group_src = read_integer("group_src", group_src);
        tensor = read_local("tensor", tensor_object);
      },
      [&] { return collective_utils::mesh_broadcast(tensor, mesh, options); }));
}

}  // namespace

void bind_mesh_collectives(py::module_& module) {
  module.def("shard_dim_alltoall", &shard_dim_alltoall_of);
  module.def("mesh_scatter", &mesh_scatter_of);
  module.def("mesh_broadcast", &mesh_broadcast_of);
  module.def("pad_tensor", &collective_utils::pad_tensor);
  module.def("unpad_tensor", &collective_utils::unpad_tensor);
  module.def("fill_empty_tensor_to_shards", &collective_utils::fill_empty_tensor_to_shards);
}

}  // namespace shardway::python
