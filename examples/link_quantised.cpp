// Two jobs in C++: a trainer that does not wait for its versions, and a generator that quantises what comes.
//   shardway launch -n 2 link_quantised trainer & shardway launch -n 2 link_quantised generator
#include <ATen/ATen.h>
#include <shardway/link.h>

#include <cstdio>
#include <map>
#include <string>
namespace sw = shardway;

namespace {

void train(sw::JobLink& link) {
  const sw::Layout layout({4, 6}, sw::DType::f32, sw::Mesh({link.size()}), {sw::shard(0)});
  const at::Tensor rows = at::empty(layout.box_at(link.rank()).extent);
  sw::LinkSource source = link.publish({{"w", rows, layout}});
  for (int step = 1; step <= 3; ++step) {
    rows.fill_(step);
    source.send(sw::SendOptions{.wait = false});  // returns when rows is copied
  }
  link.close();  // throws if a version has not arrived
}

void generate(sw::JobLink& link) {
  std::map<std::string, at::Tensor> engine;
  const auto quantise = [&](const std::string& name, const at::Tensor& piece) {
    engine[name] = piece.mul(16).round().to(at::kChar);  // piece is valid during the call only
  };
  const sw::Layout layout({4, 6}, sw::DType::f32, sw::Mesh({link.size()}), {sw::shard(1)});
  sw::LinkTarget target = link.subscribe({{"w", sw::Load{layout, sw::DType::f32, quantise, 256 << 20}}});
  for (int step = 1; step <= 3; ++step) {
    const int64_t version = target.receive();  // calls quantise
    std::printf("generator rank %ld has version %ld as %d\n", static_cast<long>(link.rank()),
                static_cast<long>(version), engine["w"].max().item<int>());
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string role = count > 1 ? words[1] : "trainer";
  const char* address = count > 2 ? words[2] : "tcp://127.0.0.1:29700";
  sw::JobLink link = sw::connect({.address = address, .role = role, .secret = "a secret of both"});
  role == "trainer" ? train(link) : generate(link);
}
