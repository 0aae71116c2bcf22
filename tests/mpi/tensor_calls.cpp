#include "tensor_calls.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <shardway/collectives.h>

#include <cstdio>
#include <sstream>
#include <string>

namespace sw = shardway;

namespace {

// One write, so that lines of several ranks do not mix.
void say(const sw::Group& world, const std::string& text) {
  const std::string line = "[" + std::to_string(world.rank()) + "] " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

std::string text_of(const at::Tensor& t) {
  std::ostringstream text;
  text.precision(17);
  text << t.sizes();
  const at::Tensor flat = t.to(at::kDouble).reshape({-1});
  const at::Tensor weights = at::arange(flat.numel(), at::kDouble).remainder(1009).add(1);
  text << " digest " << flat.mul(weights).sum().item<double>();
  return text.str();
}

at::Tensor counted(at::IntArrayRef shape, int64_t from, at::ScalarType dtype = at::kFloat) {
  return at::arange(c10::multiply_integers(shape), at::kDouble)
      .add(from)
      .remainder(251)
      .to(dtype)
      .view(shape);
}

void gather(const sw::Group& world, int64_t columns) {
  const at::Tensor x = counted({3 * world.rank(), columns}, world.rank()).requires_grad_(true);
  const auto [all, sizes] = sw::all_gather_v(x, {.group = world});
  say(world, "all_gather_v: " + text_of(all.detach()));
  all.mul(world.rank() + 1).sum().backward();
  say(world, "its gradient: " + text_of(x.grad()));
}

void reduce(const sw::Group& world, int64_t rows) {
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kLong}) {
    const at::Tensor x = counted({rows, 2}, world.rank(), dtype);
    say(world, "reduce_scatter_v: " + text_of(sw::reduce_scatter_v(x, {.group = world})));
    say(world, "all_reduce: " + text_of(sw::all_reduce(x, {.op = sw::Op::max, .group = world})));
  }
  const auto later = sw::all_reduce_async(counted({rows}, world.rank()), {.group = world});
  say(world, "all_reduce_async: " + text_of(later.wait()));
}

void exchange(const sw::Group& world, int64_t columns) {
  sw::Sizes send;
  for (int64_t peer = 0; peer < world.size(); ++peer) send.push_back(world.rank() + 2 * peer);
  int64_t rows = 0;
  for (const int64_t size : send) rows += size;
  const auto [received, sizes] =
      sw::all_to_all_v(counted({columns, rows}, world.rank()), send, {.dim = 1, .group = world});
  say(world, "all_to_all_v: " + text_of(received));
}

void disagree(const sw::Group& world) {
  const auto dtype = world.rank() + 1 == world.size() ? at::kDouble : at::kFloat;
  try {
    sw::all_gather_v(at::ones({2}, dtype), {.group = world});
    say(world, "did not notice");
  } catch (const c10::ValueError& error) {
    say(world, error.what_without_backtrace());
  }
}

}  // namespace

void make_tensor_calls(const sw::Group& world) {
  for (const int64_t columns : {2, 5003}) {
    gather(world, columns);
    exchange(world, columns);
  }
  for (const int64_t rows : {7, 30011}) reduce(world, rows);
  for (int64_t root = 0; root < world.size(); ++root) {
    const at::Tensor x = counted({6000}, world.rank() == root ? root : 100);
    say(world, "broadcast: " + text_of(sw::broadcast(x, {.src = root, .group = world})));
  }
  disagree(world);
  say(world, "after it: " + text_of(sw::all_reduce(at::ones({3}), {.group = world})));
}

void call_too_late(const sw::Group& world) {
  try {
    sw::all_reduce(at::ones({100000}), {.group = world});
    say(world, "nothing was thrown");
  } catch (const c10::DistBackendError& error) {
    say(world, error.what_without_backtrace());
  }
}
