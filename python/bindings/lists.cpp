// The collectives of shardway/collectives.h on lists: see python/shardway/_C.pyi.
#include <torch/csrc/utils/pybind.h>

#include "arguments.h"
#include "bindings.h"
#include "call.h"
#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/start.h"

namespace shardway::python {
namespace {

std::vector<at::Tensor> read_tensors(const py::handle& xs) {
  std::vector<at::Tensor> tensors;
  for (const py::handle& x : py::reinterpret_borrow<py::sequence>(xs))
    tensors.push_back(read_tensor(c10::str("x[", tensors.size(), "]").c_str(), x));
  return tensors;
}

std::optional<std::vector<Sizes>> read_size_lists(const std::string& argument, const py::handle& value) {
  if (value.is_none()) return std::nullopt;
  const bool is_list = PyList_Check(value.ptr()) || PyTuple_Check(value.ptr());
  const std::string hint = is_list ? "" : hint_at_group(value);
  if (!py::isinstance<py::sequence>(value) || !hint.empty())
    throw BadArgument(argument + " is not a list with the sizes of each tensor" + hint);
  std::vector<Sizes> lists;
  for (const py::handle& sizes : py::reinterpret_borrow<py::sequence>(value)) {
    const std::string name = c10::str(argument, "[", lists.size(), "]");
    const auto read = read_sizes(name.c_str(), sizes);
    if (!read) throw BadArgument(name + " is None");
    lists.push_back(*read);
  }
  return lists;
}

void check_no_out(const py::handle& out) {
  if (!out.is_none()) throw BadArgument("out is given, but x is a list, whose results are new tensors");
}

py::object listed_all_gather_v(const py::object& xs, const py::object& dim, const py::object& sizes,
                               const py::object& grad, const py::object& out, const py::object& group,
                               const py::object& async_op) {
  std::vector<at::Tensor> tensors;
  AllGatherListOptions options;
  const Group members = read_group(group);
  return run(
      members, async_op,
      [&](const Group& g) {
        check_no_out(out);
        tensors = read_tensors(xs);
        options = {.dim = read_integer("dim", dim),
                   .sizes = read_size_lists("sizes", sizes),
                   .grad = read_grad(grad),
                   .group = g};
      },
      [&] { return all_gather_v(tensors, options); }, [&] { return all_gather_v_async(tensors, options); },
      [&](const std::string& problem) {
        fail_list_together(Collective::all_gather_v, problem, members, !sizes.is_none(), tensors);
      });
}

py::object listed_reduce_scatter_v(const py::object& xs, const py::object& sizes, const py::object& dim,
                                   const py::object& op, const py::object& out, const py::object& group,
                                   const py::object& async_op) {
  std::vector<at::Tensor> tensors;
  ReduceScatterListOptions options;
  const Group members = read_group(group);
  return run(
      members, async_op,
      [&](const Group& g) {
        check_no_out(out);
        tensors = read_tensors(xs);
        options = {.sizes = read_size_lists("sizes", sizes),
                   .dim = read_integer("dim", dim),
                   .op = read_op(op),
                   .group = g};
      },
      [&] { return reduce_scatter_v(tensors, options); },
      [&] { return reduce_scatter_v_async(tensors, options); },
      [&](const std::string& problem) {
        fail_list_together(Collective::reduce_scatter_v, problem, members, !sizes.is_none(), tensors);
      });
}

py::object listed_all_to_all_v(const py::object& xs, const py::object& send_sizes, const py::object& dim,
                               const py::object& recv_sizes, const py::object& out, const py::object& group,
                               const py::object& async_op) {
  std::vector<at::Tensor> tensors;
  std::vector<Sizes> send;
  AllToAllListOptions options;
  const Group members = read_group(group);
  return run(
      members, async_op,
      [&](const Group& g) {
        check_no_out(out);
        tensors = read_tensors(xs);
        const auto lists = read_size_lists("send_sizes", send_sizes);
        if (!lists) throw BadArgument("send_sizes is None");
        send = *lists;
        options = {.dim = read_integer("dim", dim),
                   .recv_sizes = read_size_lists("recv_sizes", recv_sizes),
                   .group = g};
      },
      [&] { return all_to_all_v(tensors, send, options); },
      [&] { return all_to_all_v_async(tensors, send, options); },
      [&](const std::string& problem) {
        fail_list_together(Collective::all_to_all_v, problem, members, !recv_sizes.is_none(), tensors);
      });
}

py::object listed_gather_v(const py::object& xs, const py::object& dst, const py::object& group_dst,
                           const py::object& dim, const py::object& sizes, const py::object& group,
                           const py::object& ranks, const py::object& async_op) {
  std::vector<at::Tensor> tensors;
  GatherListOptions options;
  const Group members = read_group(group, ranks);
  return run(
      members, async_op,
      [&](const Group& g) {
        tensors = read_tensors(xs);
        options = {.dst = read_integer("dst", dst),
                   .group_dst = read_optional_integer("group_dst", group_dst),
                   .dim = read_integer("dim", dim),
                   .sizes = read_size_lists("sizes", sizes),
                   .group = g};
      },
      [&] { return gather_v(tensors, options); }, [&] { return gather_v_async(tensors, options); },
      [&](const std::string& problem) {
        fail_list_together(Collective::gather_v, problem, members, !sizes.is_none(), tensors);
      });
}

py::object listed_scatter_v(const py::object& xs, const py::object& src, const py::object& group_src,
                            const py::object& dim, const py::object& sizes, const py::object& group,
                            const py::object& ranks, const py::object& async_op) {
  std::vector<at::Tensor> tensors;
  ScatterListOptions options;
  const Group members = read_group(group, ranks);
  return run(
      members, async_op,
      [&](const Group& g) {
        options = {.src = read_integer("src", src),
                   .group_src = read_optional_integer("group_src", group_src),
                   .dim = read_integer("dim", dim),
                   .group = g};
        const bool is_src = checked_root("src", options.src, options.group_src, g) == g.rank();
        if (is_src) options.sizes = read_size_lists("sizes", sizes);
        tensors = read_tensors(xs);
      },
      [&] { return scatter_v(tensors, options); }, [&] { return scatter_v_async(tensors, options); },
      [&](const std::string& problem) {
        fail_list_together(Collective::scatter_v, problem, members, /*sizes_known=*/false, {});
      });
}

}  // namespace

void bind_lists(py::module_& module) {
  module.def("all_gather_v_list", &listed_all_gather_v);
  module.def("reduce_scatter_v_list", &listed_reduce_scatter_v);
  module.def("all_to_all_v_list", &listed_all_to_all_v);
  module.def("gather_v_list", &listed_gather_v);
  module.def("scatter_v_list", &listed_scatter_v);
}

}  // namespace shardway::python
