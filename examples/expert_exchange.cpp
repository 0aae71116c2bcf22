// A mixture of experts, one per rank: tokens travel to their expert and back.
//
// Every rank has its own number of tokens and a router that picks an expert per token. Tokens are sorted by
// expert, sent to its rank, processed there, sent back and put in their old order. Outputs and gradients are
// those of one process with all tokens and all experts. The ranks are threads of this program.
#include <ATen/ATen.h>
#include <shardway/shardway.h>
#include <torch/csrc/autograd/autograd.h>

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
  const std::vector<int64_t> counts = {24, 17, 0, 5};
  const auto ranks = static_cast<int64_t>(counts.size());
  const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::manual_seed(0);
  const at::Tensor tokens = at::randn({total, kWidth}, at::kDouble).requires_grad_();
  const at::Tensor target = at::randn({total, kWidth}, at::kDouble);
  const at::Tensor router = at::randn({kWidth, ranks}, at::kDouble);
  std::vector<at::Tensor> experts;
  for (int64_t e = 0; e < ranks; ++e)
    experts.push_back(at::randn({kWidth, kWidth}, at::kDouble).requires_grad_());

  const at::Tensor output = one_process(tokens, router, experts);
  std::vector<at::Tensor> leaves = experts;
  leaves.push_back(tokens);
  const auto gradients = torch::autograd::grad({(output * target).sum()}, leaves);

  const auto own_tokens = tokens.detach().split_with_sizes(counts);
  const auto own_targets = target.split_with_sizes(counts);
  std::vector<RankResult> results(counts.size());
  sw::run_as_threads(ranks, [&](const sw::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    const at::Tensor leaf = own_tokens[rank].clone().requires_grad_();
    results[rank] =
        one_rank(leaf, router, experts[rank].detach().clone().requires_grad_(), own_targets[rank], group);
  });

  double in_outputs = 0;
  double in_gradients = 0;
  std::vector<int64_t> arrived;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const RankResult& result = results[rank];
    in_outputs = std::max(in_outputs, distance(result.output, output.split_with_sizes(counts)[rank]));
    in_gradients = std::max({in_gradients,
                             distance(result.token_gradient, gradients.back().split_with_sizes(counts)[rank]),
                             distance(result.expert_gradient, gradients[rank])});
    arrived.push_back(result.arrived);
  }
  std::cout << ranks << " ranks, one expert each\n"
            << "tokens per rank " << at::IntArrayRef(counts) << ", tokens that came to each expert "
            << at::IntArrayRef(arrived) << '\n'
            << "largest difference from one process with all tokens and experts: outputs " << in_outputs
            << ", gradients " << in_gradients << '\n';
  if (!(std::max(in_outputs, in_gradients) < kTolerance)) {
    std::cout << "the exchange does not give the outputs and gradients of one process\n";
    return 1;
  }
  std::cout << "ok: the exchange gives the outputs and gradients of one process\n";
}
