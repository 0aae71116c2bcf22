#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "ops/call/arguments.h"
#include "shardway/group.h"
#include "transport/common/giving_up.h"
#include "transport/common/transport.h"

namespace shardway {
namespace {

void check_arguments(const Route& route, const at::Tensor& x, const at::Tensor& out, const Group& group) {
  try {
    validate(route);
  } catch (const std::invalid_argument& error) {
    throw BadArgument(error.what());
  }
  if (route.rank != group.rank() || route.size != group.size()) {
    throw BadArgument(c10::str("the route is rank ", route.rank, "'s of ", route.size,
                               ", but the group has rank ", group.rank(), " of ", group.size()));
  }
  if (!x.defined() || !out.defined()) throw BadArgument("x and out must be tensors");
  if (x.sizes() != route.input_shape)
    throw BadArgument(
        c10::str("x has shape ", x.sizes(), ", but the route reads ", at::IntArrayRef(route.input_shape)));
  if (out.sizes() != route.output_shape)
    throw BadArgument(c10::str("out has shape ", out.sizes(), ", but the route writes ",
                               at::IntArrayRef(route.output_shape)));
  if (x.scalar_type() != out.scalar_type())
    throw BadArgument(c10::str("x has dtype ", dtype_name(x.scalar_type()), ", but out has ",
                               dtype_name(out.scalar_type())));
  if (x.device() != out.device())
    throw BadArgument(c10::str("x is on ", x.device(), ", but out is on ", out.device()));
  if (const auto why = group.transport().refuses(x.device())) throw BadArgument(*why);
  check_apart(out, x);
  if (reduces(landings(route), route)) check_reduction(x.detach(), route.divisor == 1 ? route.op : Op::avg);
}

}  // namespace

void execute(const Route& route, const at::Tensor& x, const at::Tensor& out, const Group& group) {
  const std::string problem = problem_in([&] { check_arguments(route, x, out, group); });
  if (!problem.empty()) raise("execute", problem, group.rank());
  const at::NoGradGuard guard;
  const Subject subject{
      .mark = shm::mark_of("execute"), .name = "execute", .words = [] { return std::string("execute"); }};
  Transport& transport = group.transport();
  or_give_up(transport, [&] { transport.start(route, materialized(x), out, {}, subject)->finish(); });
}

}  // namespace shardway
