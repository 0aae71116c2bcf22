// A ragged gather and a plan: `shardway launch -n 2 ./gather`.
#include <ATen/ops/full.h>
#include <shardway/collectives.h>
#include <shardway/plan.h>
#include <shardway/version.h>

#include <cstdio>

namespace sw = shardway;

int main() {
  const sw::Group world = sw::join();
  const at::Tensor x = at::full({world.rank() + 1, 2}, static_cast<double>(world.rank() + 1));
  const auto [all, sizes] = sw::all_gather_v(x, {.group = world});

  const sw::Layout from({8, 8}, sw::DType::f32, sw::Mesh({2}), {sw::shard(0)});
  const auto plan = sw::plan(from, from.with({sw::replicate()}));
  std::printf("%s: %ld rows, the last is %.0f; %zu step\n", sw::version(), static_cast<long>(all.size(0)),
              all.select(0, all.size(0) - 1).select(0, 0).item<double>(), plan->steps.size());
}
