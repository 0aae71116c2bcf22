// The inference job of examples/link_trainer.py in C++: shardway launch -n 2 link_generator [ADDRESS]
#include <ATen/ATen.h>
#include <shardway/link.h>

#include <cstdio>
namespace sw = shardway;

int main(int count, char** words) {
  const char* address = count > 1 ? words[1] : "tcp://127.0.0.1:29700";
  sw::JobLink link = sw::connect({.address = address, .role = "generator", .secret = "a secret of both"});
  const sw::Layout layout({4, 6}, sw::DType::f32, sw::Mesh({link.size()}), {sw::shard(1)});
  const at::Tensor columns = at::empty(layout.box_at(link.rank()).extent);
  sw::LinkTarget target = link.subscribe({{"w", columns, layout}});
  for (int step = 0; step < 3; ++step) {
    const int64_t version = target.receive();  // waits for the next version, and writes it into columns
    if (!columns.eq(version).all().item<bool>()) return 1;
    std::printf("generator rank %ld has version %ld\n", static_cast<long>(link.rank()),
                static_cast<long>(version));
  }
}
