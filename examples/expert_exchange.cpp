// A mixture of experts, one per rank: tokens travel to their expert and back.
//
// Every rank has its own number of tokens and a router that picks an expert per token. Tokens are sorted by
// expert, sent to its rank, processed there, sent back and put in their old order. Outputs and gradients are
// those of one process with all tokens and all experts. A program of several processes:
// `shardway launch -n 4 ./expert_exchange`, or torchrun, or mpirun.
#include <ATen/ATen.h>
#include <shardway/collectives.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <numeric>

namespace sw = shardway;

namespace {

constexpr int64_t kWidth = 8;
constexpr double kTolerance = 1e-10;

at::Tensor expert(const at::Tensor& tokens, const at::Tensor& weight) {
  return at::gelu(at::matmul(tokens, weight));
}

// Which expert each token goes to. The last one is starved, as routers do: its rank gets no rows.
at::Tensor routed(const at::Tensor& tokens, const at::Tensor& router) {
  return at::matmul(tokens, router).narrow(1, 0, std::max<int64_t>(1, router.size(1) - 1)).argmax(1);
}

at::Tensor one_process(const at::Tensor& tokens, const at::Tensor& router,
                       const std::vector<at::Tensor>& experts) {
  const at::Tensor choice = routed(tokens, router);
  at::Tensor result = at::zeros_like(tokens);
  for (size_t e = 0; e < experts.size(); ++e) {
    const at::Tensor chosen = at::nonzero(choice == static_cast<int64_t>(e)).flatten();
    result = result.index_copy(0, chosen, expert(tokens.index_select(0, chosen), experts[e]));
  }
  return result;
}

struct RankResult {
  at::Tensor output;
  at::Tensor token_gradient;
  at::Tensor expert_gradient;
  int64_t arrived = 0;
};

RankResult one_rank(const at::Tensor& tokens, const at::Tensor& router, const at::Tensor& weight,
                    const at::Tensor& target, const sw::Group& group) {
  const at::Tensor choice = routed(tokens, router);
  const at::Tensor order = choice.argsort(/*stable=*/true);
  const at::Tensor counts = at::bincount(choice, {}, group.size());
  const sw::Sizes send_sizes(counts.const_data_ptr<int64_t>(),
                             counts.const_data_ptr<int64_t>() + group.size());

  const auto [arrived, recv_sizes] =
      sw::all_to_all_v(tokens.index_select(0, order), send_sizes, {.group = group});
  const at::Tensor processed = expert(arrived, weight);
  const auto returned = sw::all_to_all_v(processed, recv_sizes, {.recv_sizes = send_sizes, .group = group});
  const at::Tensor output = returned.tensor.index_select(0, order.argsort());

  const auto gradients = torch::autograd::grad({(output * target).sum()}, {tokens, weight});
  return {.output = output,
          .token_gradient = gradients[0],
          .expert_gradient = gradients[1],
          .arrived = arrived.size(0)};
}

double distance(const at::Tensor& found, const at::Tensor& expected) {
  return expected.numel() == 0 ? 0 : (found - expected).abs().max().item<double>();
}

}  // namespace

int main() {
  const sw::Group world = sw::join();
  const int64_t ranks = world.size();
  const auto rank = static_cast<size_t>(world.rank());
  constexpr std::array<int64_t, 4> kCounts = {24, 17, 0, 5};
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < ranks; ++r) counts.push_back(kCounts[static_cast<size_t>(r) % kCounts.size()]);
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::manual_seed(0);  // the same tokens, router and experts on every rank
  const at::Tensor tokens = at::randn({total, kWidth}, at::kDouble).requires_grad_();
  const at::Tensor target = at::randn({total, kWidth}, at::kDouble);
  const at::Tensor router = at::randn({kWidth, ranks}, at::kDouble);
  std::vector<at::Tensor> experts;
  for (int64_t e = 0; e < ranks; ++e)
    experts.push_back(at::randn({kWidth, kWidth}, at::kDouble).requires_grad_());

  const at::Tensor output = one_process(tokens, router, experts);
  const auto gradients = torch::autograd::grad({(output * target).sum()}, {tokens, experts[rank]});

  const at::Tensor own_tokens = tokens.detach().split_with_sizes(counts)[rank].clone().requires_grad_();
  const at::Tensor own_expert = experts[rank].detach().clone().requires_grad_();
  const RankResult result =
      one_rank(own_tokens, router, own_expert, target.split_with_sizes(counts)[rank], world);

  const double in_outputs = distance(result.output, output.split_with_sizes(counts)[rank]);
  const double in_gradients =
      std::max(distance(result.token_gradient, gradients[0].split_with_sizes(counts)[rank]),
               distance(result.expert_gradient, gradients[1]));
  const at::Tensor mine =
      at::tensor({in_outputs, in_gradients, static_cast<double>(result.arrived)}, at::kDouble);
  const at::Tensor all = sw::all_gather_v(mine.unsqueeze(0), {.group = world}).tensor;
  const bool is_same = all.narrow(1, 0, 2).max().item<double>() < kTolerance;
  if (world.rank() != 0) return is_same ? 0 : 1;

  const at::Tensor arrived = all.select(1, 2).to(at::kLong).contiguous();
  std::cout << ranks << " ranks, one expert each\n"
            << "tokens per rank " << at::IntArrayRef(counts) << ", tokens that came to each expert "
            << at::IntArrayRef(arrived.const_data_ptr<int64_t>(), counts.size()) << '\n'
            << (is_same ? "ok: the exchange gives the outputs and gradients of one process\n"
                        : "the exchange does not give the outputs and gradients of one process\n");
  return is_same ? 0 : 1;
}
