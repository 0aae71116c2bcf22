#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/call/header.h"
#include "ops/call/launch.h"
#include "ops/call/recording.h"
#include "ops/call/start.h"
#include "ops/mesh/mesh_rows.h"
#include "shardway/mesh_collectives.h"
#include "transport/common/transport.h"
#include "transport/memory/tensors.h"

namespace shardway::collective_utils {
namespace {

constexpr Collective kOp = Collective::shard_dim_alltoall;

// One rank's call. read_request makes its dims count from the front.
struct AllToAllRequest {
  Rows rows = {};
  int64_t gather_dim = 0;
  int64_t shard_dim = 0;
};

int64_t from_the_front(const char* name, int64_t dim, const at::Tensor& input) {
  if (dim < -input.dim() || dim >= input.dim())
    throw BadArgument(c10::str(name, "=", dim, " is out of range for a ", input.dim(), "-d tensor"));
  return dim < 0 ? dim + input.dim() : dim;
}

// Fills in `request` until it finds an invalid argument; then throws std::invalid_argument.
void read_request(const at::Tensor& input, const Mesh& mesh, int64_t mesh_dim, const Group& group,
                  AllToAllRequest& request) {
  request.rows = rows_along(mesh, mesh_dim, group);
  check_tensor_of(request.rows, input, "input");
  if (!input.defined()) return;
  if (!input.is_meta()) check_movable(input, group, "input");
  dtype_of(input.scalar_type());
  request.gather_dim = from_the_front("gather_dim", request.gather_dim, input);
  request.shard_dim = from_the_front("shard_dim", request.shard_dim, input);
}

// The result without data, as if every rank of the row had an input of this size.
at::Tensor shape_alone(const at::Tensor& input, const AllToAllRequest& request, const Group& group) {
  const Row& row = request.rows.mine();
  const auto ranks = static_cast<int64_t>(row.size());
  std::vector<int64_t> shape = input.sizes().vec();
  shape[static_cast<size_t>(request.gather_dim)] *= ranks;
  int64_t& extent = shape[static_cast<size_t>(request.shard_dim)];
  extent = chunk_sizes(extent, ranks)[static_cast<size_t>(place_in(row, group.rank()))];
  return input.new_empty(shape);
}

Route route_of(const AllToAllRequest& request, const Agreement& agreement, const Group& group) {
  if (!request.rows.own)
    return {.rank = group.rank(), .size = group.size(), .input_shape = {0}, .output_shape = {0}};
  const Row& row = request.rows.mine();
  std::vector<int64_t> shape = agreement.shape_on(group.rank());
  Sizes sizes;
  for (const int64_t rank : row) sizes.push_back(agreement.size_along_dim(rank));
  int64_t& total = shape[static_cast<size_t>(request.gather_dim)] = 0;
  for (const int64_t size : sizes)
    TORCH_CHECK_VALUE(!__builtin_add_overflow(total, size, &total), name_of(kOp),
                      ": the inputs add up to more than 2^63 - 1 along gather_dim");
  const Layout from(shape, dtype_of(agreement.dtype_on(group.rank())),
                    Mesh({static_cast<int64_t>(row.size())}, row, {}), {shard(request.gather_dim, sizes)});
  Route route = redistribution_route(from, from.with({shard(request.shard_dim)}), group.rank());
  route.size = group.size();
  return route;
}

// Throws c10::ValueError if the group has ranks outside the mesh. They have no result to run backward from,
// though backward is a collective of the group.
void check_backward(const AllToAllRequest& request, const Group& group) {
  size_t inside = 0;
  for (const Row& row : request.rows.all) inside += row.size();
  TORCH_CHECK_VALUE(inside == static_cast<size_t>(group.size()), name_of(kOp),
                    ": an input requires grad, but the group has ", group.size(), " ranks and the mesh ",
                    inside, ": pass a group of the mesh's ranks alone, or input.detach()");
}

at::Tensor moved(const at::Tensor& input, const AllToAllRequest& request, const Agreement& agreement,
                 const Group& group) {
  compare_along(request.rows, agreement, wire::Point::dtype);
  compare_along(request.rows, agreement, wire::Point::shape);
  Launch run{.collective = kOp,
             .number = agreement.number(),
             .forward = route_of(request, agreement, group),
             .differentiable = agreement.any_requires_grad(),
             .known = agreement.known_inputs()};
  if (run.differentiable) {
    check_backward(request, group);
    run.backward = transposed(run.forward);
  }
  run.x = input;
  if (input.defined()) return launch(std::move(run), group).wait();
  const auto device = agreement.device().value_or(c10::DeviceType::CPU);
  run.x = empty_tensor({0}, at::device(device));
  launch(std::move(run), group).wait();
  return {};
}

}  // namespace

at::Tensor shard_dim_alltoall(const at::Tensor& input, int64_t gather_dim, int64_t shard_dim,
                              const Mesh& mesh, int64_t mesh_dim, const Group& group) {
  const Recording recording(name_of(kOp), input);
  group.check_meant(name_of(kOp));
  AllToAllRequest request{.gather_dim = gather_dim, .shard_dim = shard_dim};
  Call call{.collective = kOp, .wanted = Wanted::parts};
  call.problem = problem_in([&] { read_request(input, mesh, mesh_dim, group, request); });
  const bool communicates = group.distributed() && !(input.defined() && input.is_meta());
  if (!communicates) {
    if (!call.problem.empty()) raise(name_of(kOp), call.problem, group.rank());
    return input.is_meta() ? shape_alone(input, request, group) : input;
  }
  call.x = input;
  call.dim = request.gather_dim;
  std::string words =
      c10::str(words_of(mesh, mesh_dim), "\ngather_dim: ", gather_dim, "\nshard_dim: ", shard_dim);
  call.hash = hash_of(words);
  call.words = [&] { return words; };
  return moved(input, request, agree(call, group), group);
}

Async<at::Tensor> shard_dim_alltoall_async(const at::Tensor& input, int64_t gather_dim, int64_t shard_dim,
                                           const Mesh& mesh, int64_t mesh_dim, const Group& group) {
  const auto call = [=] { return shard_dim_alltoall(input, gather_dim, shard_dim, mesh, mesh_dim, group); };
  if (!can_be_posted(input, group)) return Async<at::Tensor>(call());
  return post_call<at::Tensor>(group, call);
}

}  // namespace shardway::collective_utils
