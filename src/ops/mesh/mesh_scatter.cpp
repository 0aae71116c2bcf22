// mesh_scatter and mesh_broadcast: one rank of each row sends to the others.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "ops/call/arguments.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/recording.h"
#include "ops/mesh/call_work.h"
#include "ops/mesh/mesh_rows.h"
#include "shardway/mesh_collectives.h"
#include "transport/common/transport.h"
#include "transport/memory/tensors.h"

namespace shardway::collective_utils {
namespace {

c10::intrusive_ptr<c10d::Work> run(c10d::OpType op, const at::Tensor& filled, const MeshOptions& options,
                                   std::function<void()> call) {
  if (!options.async_op) {
    call();
    return nullptr;
  }
  auto work = c10::make_intrusive<MeshWork>(op, filled);
  if (can_be_posted(filled, options.group)) {
    options.group.transport().post([work, call = std::move(call)] { work->run(call); });
  } else {
    work->run(call);
  }
  return work;
}

// A part of the source's elements, which are contiguous.
struct Stretch {
  int64_t offset = 0;
  int64_t length = 0;
};

// The source sends stretch i to member i of its row. The stretch fills that member's output.
Route route_from(int64_t source, const Row& row, const std::vector<Stretch>& stretches, const Group& group) {
  Route route{.rank = group.rank(), .size = group.size(), .input_shape = {0}, .output_shape = {0}};
  std::vector<size_t> by_rank(row.size());
  std::iota(by_rank.begin(), by_rank.end(), size_t{0});
  std::sort(by_rank.begin(), by_rank.end(), [&](size_t a, size_t b) { return row[a] < row[b]; });
  for (const size_t i : by_rank) {
    const Stretch& stretch = stretches[i];
    const Box at_source{.offset = {stretch.offset}, .extent = {stretch.length}};
    const Box at_member = Box::whole({stretch.length});
    if (row[i] == group.rank()) route.output_shape = {stretch.length};
    if (source == group.rank())
      route.input_shape[0] = std::max(route.input_shape[0], stretch.offset + stretch.length);
    if (stretch.length == 0) continue;
    if (row[i] == group.rank())
      route.pulls.push_back({.peer = source, .mine = at_member, .theirs = at_source});
    if (source == group.rank())
      route.pushes.push_back({.peer = row[i], .mine = at_source, .theirs = at_member});
  }
  return route;
}

// Runs the route so that it fills all elements of `target`. Collective.
void fill(const at::Tensor& target, const at::Tensor& flat, Launch run, const Group& group) {
  const bool is_plain = target.is_contiguous() && !target.is_conj() && !target.is_neg();
  const at::Tensor landing = is_plain ? target.view({-1}) : empty_tensor({target.numel()}, target.options());
  run.out = landing;
  run.x = flat;
  launch(std::move(run), group).wait();
  if (!is_plain) target.copy_(landing.view(target.sizes()));
}

int64_t shape_number(at::IntArrayRef shape) {
  uint64_t number = 14695981039346656037U;
  for (const int64_t extent : shape) number = (number ^ static_cast<uint64_t>(extent)) * 1099511628211U;
  return static_cast<int64_t>(number);
}

// One rank's call of either function, as it understood its arguments.
struct ScatterRequest {
  Rows rows = {};
  Call call = {};

  Row row() const { return rows.own ? rows.mine() : Row{}; }
};

int64_t source_of(const Row& row, const MeshOptions& options) {
  return row.empty() ? -1 : row[static_cast<size_t>(options.group_src)];
}

bool is_source(const ScatterRequest& request, const MeshOptions& options) {
  return source_of(request.row(), options) == options.group.rank();
}

// `check` reads the arguments that only one of the two functions has.
template <class Check>
ScatterRequest read_request(Collective collective, const at::Tensor& tensor, const char* name,
                            const Mesh& mesh, const MeshOptions& options, const Check& check) {
  ScatterRequest request{.call = {.collective = collective}};
  request.call.problem = problem_in([&] {
    request.rows = rows_along(mesh, options.mesh_dim, options.group);
    const auto members = static_cast<int64_t>(request.rows.all.front().size());
    if (options.group_src < 0 || options.group_src >= members)
      throw BadArgument(
          c10::str("group_src=", options.group_src, " is out of range for ", members, " ranks"));
    check_tensor_of(request.rows, tensor, name);
    if (!tensor.defined()) return;
    check_movable(tensor, options.group, name);
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
      throw BadArgument(c10::str(name, " overlaps itself: several of its elements share memory"));
    request.call.x = tensor;
    check(request);
  });
  std::string words = c10::str(words_of(mesh, options.mesh_dim), "\ngroup_src: ", options.group_src);
  request.call.hash = hash_of(words);
  request.call.words = [words = std::move(words)] { return std::string(words); };
  return request;
}

void check_list(const std::vector<at::Tensor>& list, const at::Tensor& output, size_t members) {
  if (list.size() != members)
    throw BadArgument(c10::str("scatter_list has ", list.size(), " tensors for ", members,
                               members == 1 ? " rank" : " ranks"));
  for (size_t i = 0; i < list.size(); ++i) {
    check_dense(list[i], c10::str("scatter_list[", i, "]").c_str());
    if (list[i].scalar_type() != output.scalar_type() || list[i].device() != output.device())
      throw BadArgument(c10::str("scatter_list[", i, "] is ", dtype_name(list[i].scalar_type()), " on ",
                                 list[i].device(), ", but output is ", dtype_name(output.scalar_type()),
                                 " on ", output.device()));
  }
}

// Throws the same c10::ValueError on every rank if a list does not fit the outputs. Every rank sees the
// shapes of all outputs, and a number for the shape of each tensor of a list.
void check_lists(const Rows& rows, const Agreement& agreement, const MeshOptions& options) {
  for (const Row& row : rows.all) {
    const int64_t source = source_of(row, options);
    const Sizes numbers = agreement.recv_sizes(source);
    for (size_t i = 0; i < row.size(); ++i) {
      const Sizes shape = agreement.shape_on(row[i]);
      TORCH_CHECK_VALUE(numbers[static_cast<size_t>(row[i])] == shape_number(shape),
                        "mesh_scatter: output has shape ", at::IntArrayRef(shape), " on rank ", row[i],
                        ", but scatter_list[", i, "] on rank ", source, " has another");
    }
  }
}

ScatterRequest read_scatter(const at::Tensor& output, const std::vector<at::Tensor>& list, const Mesh& mesh,
                            const MeshOptions& options) {
  return read_request(Collective::mesh_scatter, output, "output", mesh, options,
                      [&](ScatterRequest& request) {
                        if (!is_source(request, options)) return;
                        const Row row = request.row();
                        check_list(list, output, row.size());
                        Sizes& numbers = request.call.recv_sizes;
                        numbers.resize(static_cast<size_t>(options.group.size()));
                        for (size_t i = 0; i < row.size(); ++i)
                          numbers[static_cast<size_t>(row[i])] = shape_number(list[i].sizes());
                      });
}

std::vector<Stretch> one_after_the_other(const Row& row, const Agreement& agreement) {
  std::vector<Stretch> stretches;
  int64_t offset = 0;
  for (const int64_t rank : row) {
    const int64_t length = Box::whole(agreement.shape_on(rank)).volume();
    stretches.push_back({.offset = offset, .length = length});
    offset += length;
  }
  return stretches;
}

at::Tensor laid_out(const std::vector<at::Tensor>& list, const std::vector<Stretch>& stretches) {
  const Stretch& last = stretches.back();
  at::Tensor flat = empty_tensor({last.offset + last.length}, list.front().options().requires_grad(false));
  for (size_t i = 0; i < list.size(); ++i)
    flat.narrow(0, stretches[i].offset, stretches[i].length).copy_(list[i].reshape({-1}));
  return flat;
}

// An empty tensor on the device of the ranks that have a tensor.
at::Tensor nothing_like(const at::Tensor& tensor, const Agreement& agreement) {
  if (tensor.defined()) return empty_tensor({0}, tensor.options().requires_grad(false));
  return empty_tensor({0}, at::device(agreement.device().value_or(c10::DeviceType::CPU)));
}

void scatter(const at::Tensor& output, const std::vector<at::Tensor>& list, const Mesh& mesh,
             const MeshOptions& options) {
  const at::NoGradGuard guard;
  const Group& group = options.group;
  const ScatterRequest request = read_scatter(output, list, mesh, options);
  if (!group.distributed()) {
    if (!request.call.problem.empty()) raise("mesh_scatter", request.call.problem, group.rank());
    if (list.front().sizes() != output.sizes())
      raise("mesh_scatter",
            c10::str("output has shape ", output.sizes(), ", scatter_list[0] has ", list.front().sizes()), 0);
    output.copy_(list.front());
    return;
  }
  const Agreement agreement = agree(request.call, group);
  compare_along(request.rows, agreement, wire::Point::dtype);
  check_lists(request.rows, agreement, options);
  const Row row = request.row();
  const std::vector<Stretch> stretches = one_after_the_other(row, agreement);
  const at::Tensor nothing = nothing_like(output, agreement);
  fill(output.defined() ? output : nothing, is_source(request, options) ? laid_out(list, stretches) : nothing,
       {.collective = Collective::mesh_scatter,
        .number = agreement.number(),
        .forward = route_from(source_of(row, options), row, stretches, group)},
       group);
}

// Returns the sources' tensors, if they came with the headers. Nobody needs anything from the other ranks.
KnownInputs known_sources(const Rows& rows, const Agreement& agreement, const MeshOptions& options) {
  KnownInputs known = agreement.known_inputs();
  if (known.empty()) return known;
  std::vector<bool> sends(known.size(), false);
  for (const Row& row : rows.all) sends[static_cast<size_t>(source_of(row, options))] = true;
  for (size_t rank = 0; rank < known.size(); ++rank) {
    if (!sends[rank]) known[rank] = empty_tensor({0});
    if (sends[rank] && known[rank].defined()) known[rank] = known[rank].view({-1});
  }
  return known;
}

void broadcast(const at::Tensor& tensor, const Mesh& mesh, const MeshOptions& options) {
  const at::NoGradGuard guard;
  const Group& group = options.group;
  const ScatterRequest request =
      read_request(Collective::mesh_broadcast, tensor, "tensor", mesh, options, [&](ScatterRequest& read) {
        read.call.wanted = is_source(read, options) ? Wanted::whole : Wanted::nothing;
      });
  if (!group.distributed()) {
    if (!request.call.problem.empty()) raise("mesh_broadcast", request.call.problem, group.rank());
    return;
  }
  const Agreement agreement = agree(request.call, group);
  compare_along(request.rows, agreement, wire::Point::dtype);
  compare_along(request.rows, agreement, wire::Point::shape);
  const Row row = request.row();
  std::vector<Stretch> stretches(row.size(), {.length = tensor.defined() ? tensor.numel() : 0});
  if (!row.empty()) stretches[static_cast<size_t>(options.group_src)] = {};
  const at::Tensor nothing = nothing_like(tensor, agreement);
  const bool sends = is_source(request, options);
  fill(sends || !tensor.defined() ? nothing : tensor, sends ? materialized(tensor).reshape({-1}) : nothing,
       {.collective = Collective::mesh_broadcast,
        .number = agreement.number(),
        .forward = route_from(source_of(row, options), row, stretches, group),
        .known = known_sources(request.rows, agreement, options)},
       group);
}

}  // namespace

c10::intrusive_ptr<c10d::Work> mesh_scatter(const at::Tensor& output,
                                            const std::vector<at::Tensor>& scatter_list, const Mesh& mesh,
                                            const MeshOptions& options) {
  if (output.defined() && output.is_meta()) return nullptr;
  const Recording recording("mesh_scatter", output);
  options.group.check_meant("mesh_scatter");
  return run(c10d::OpType::SCATTER, output, options, [=] { scatter(output, scatter_list, mesh, options); });
}

c10::intrusive_ptr<c10d::Work> mesh_broadcast(const at::Tensor& tensor, const Mesh& mesh,
                                              const MeshOptions& options) {
  if (tensor.defined() && tensor.is_meta()) return nullptr;
  const Recording recording("mesh_broadcast", tensor);
  options.group.check_meant("mesh_broadcast");
  return run(c10d::OpType::BROADCAST, tensor, options, [=] { broadcast(tensor, mesh, options); });
}

}  // namespace shardway::collective_utils
