// A plan, its page and a gather of plain memory: `shardway launch -n 2 ./without_torch`.
#include <shardway/page.h>
#include <shardway/plan.h>
#include <shardway/shm.h>
#include <shardway/version.h>

#include <cstdio>

namespace sw = shardway;

int main() {
  const sw::Layout from({8, 8}, sw::DType::f32, sw::Mesh({2}), {sw::shard(0)});
  const auto plan = sw::plan(from, from.with({sw::replicate()}));
  const bool is_page = sw::to_html(*plan).starts_with("<!");

  const sw::HostGroup world = sw::HostGroup::join();
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < world.size(); ++rank) sizes.push_back(rank + 1);
  const std::vector<float> mine(static_cast<size_t>(world.rank() + 1), static_cast<float>(world.rank() + 1));
  std::vector<float> all(static_cast<size_t>(world.size() * (world.size() + 1) / 2));
  world.all_gather_v<float>(mine, all, sizes);
  std::printf("%s: %zu numbers, the last is %.0f; %zu step%s\n", sw::version(), all.size(), all.back(),
              plan->steps.size(), is_page ? ", a page" : "");
}
