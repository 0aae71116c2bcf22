// The collectives of shardway/collectives.h in which one rank gives or takes: see python/shardway/_C.pyi.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/start.h"

namespace shardway::python {
namespace {

py::object broadcast_of(const py::object& x, const py::object& src, const py::object& group_src,
                        const py::object& group, const py::object& ranks, const py::object& async_op) {
  at::Tensor tensor;
  BroadcastOptions options;
  return run(
      Collective::broadcast, read_group(group, ranks),
      [&](const Group& g) { return skips_exchange(tensor, g); }, tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        options = {.src = read_integer("src", src),
                   .group_src = read_optional_integer("group_src", group_src),
                   .group = g};
      },
      [&] { return broadcast(tensor, options); }, [&] { return broadcast_async(tensor, options); });
}

py::object gather_v_of(const py::object& x, const py::object& dst, const py::object& group_dst,
                       const py::object& dim, const py::object& sizes, const py::object& group,
                       const py::object& ranks, const py::object& async_op) {
  at::Tensor tensor;
  GatherOptions options;
  return run(
      Collective::gather_v, read_group(group, ranks), !sizes.is_none(), tensor, async_op,
      [&](const Group& g) {
        tensor = read_tensor("x", x);
        options = {.dst = read_integer("dst", dst),
                   .group_dst = read_optional_integer("group_dst", group_dst),
                   .dim = read_integer("dim", dim),
                   .sizes = read_sizes("sizes", sizes),
                   .group = g};
      },
      [&] { return gather_v(tensor, options); }, [&] { return gather_v_async(tensor, options); });
}

py::object scatter_v_of(const py::object& x, const py::object& src, const py::object& group_src,
                        const py::object& dim, const py::object& sizes, const py::object& group,
                        const py::object& ranks, const py::object& async_op) {
  std::optional<at::Tensor> tensor;
  ScatterOptions options;
  return run(
      Collective::scatter_v, read_group(group, ranks), /*sizes_known=*/false, at::Tensor(), async_op,
      [&](const Group& g) {
        options = {.src = read_integer("src", src),
                   .group_src = read_optional_integer("group_src", group_src),
                   .dim = read_integer("dim", dim),
                   .group = g};
        const bool is_src = checked_root("src", options.src, options.group_src, g) == g.rank();
        if (is_src) options.sizes = read_sizes("sizes", sizes);
        if (is_src || THPVariable_Check(x.ptr())) tensor = read_optional_tensor("x", x);
      },
      [&] { return scatter_v(tensor, options); }, [&] { return scatter_v_async(tensor, options); });
}

}  // namespace

void bind_rooted(py::module_& module) {
  module.def("broadcast", &broadcast_of);
  module.def("gather_v", &gather_v_of);
  module.def("scatter_v", &scatter_v_of);
}

}  // namespace shardway::python
