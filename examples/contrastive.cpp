// A contrastive (CLIP-like) loss over batches whose size differs per rank.
//
// Every rank embeds its own pairs, gathers the embeddings of all ranks and takes the loss of its own rows
// against all columns. The losses of the ranks add up to the loss of one process with the whole batch, and
// so do the gradients: all_gather_v passes back what every other rank's loss says about a rank's rows.
// A program of several processes: `shardway launch -n 4 ./contrastive`, or torchrun, or mpirun.
#include <ATen/ATen.h>
#include <shardway/collectives.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <numeric>

namespace sw = shardway;

namespace {

constexpr int64_t kFeatures = 12;
constexpr int64_t kEmbedding = 8;
constexpr double kTolerance = 1e-10;

// One linear map per kind of input; every rank has a copy.
struct TwoTowers {
  at::Tensor image = at::randn({kFeatures, kEmbedding}, at::kDouble).requires_grad_();
  at::Tensor text = at::randn({kFeatures, kEmbedding}, at::kDouble).requires_grad_();

  std::vector<at::Tensor> parameters() const { return {image, text}; }
};

struct Batch {
  at::Tensor images;
  at::Tensor texts;
};

at::Tensor embedded(const at::Tensor& input, const at::Tensor& weight) {
  const at::Tensor embedding = at::matmul(input, weight);
  return embedding / embedding.norm(2, {1}, /*keepdim=*/true);
}

// What the pairs from row `first` on bring to the mean loss over all pairs.
at::Tensor loss_of_rows(const Batch& own, const Batch& all, int64_t first) {
  const at::Tensor own_pair = at::arange(first, first + own.images.size(0), at::kLong);
  const auto one_way = [&](const at::Tensor& rows, const at::Tensor& columns) {
    return at::cross_entropy_loss(at::matmul(rows, columns.t()) * 5, own_pair, {}, at::Reduction::Sum);
  };
  return (one_way(own.images, all.texts) + one_way(own.texts, all.images)) / (2 * all.images.size(0));
}

// A loss and the gradients of the parameters.
std::vector<at::Tensor> with_gradients(const at::Tensor& loss, const TwoTowers& model) {
  std::vector<at::Tensor> results = torch::autograd::grad({loss}, model.parameters());
  results.insert(results.begin(), loss.detach());
  return results;
}

std::vector<at::Tensor> one_process(const TwoTowers& model, const Batch& batch) {
  const Batch all{.images = embedded(batch.images, model.image), .texts = embedded(batch.texts, model.text)};
  return with_gradients(loss_of_rows(all, all, 0), model);
}

std::vector<at::Tensor> one_rank(const TwoTowers& model, const Batch& batch, const sw::Group& group) {
  const Batch own{.images = embedded(batch.images, model.image), .texts = embedded(batch.texts, model.text)};
  const auto [images, sizes] = sw::all_gather_v(own.images, {.group = group});
  const auto texts =
      sw::all_gather_v(own.texts, {.sizes = sizes, .group = group});  // known now: no second exchange
  const int64_t first = std::accumulate(sizes.begin(), sizes.begin() + group.rank(), int64_t{0});
  return with_gradients(loss_of_rows(own, {.images = images, .texts = texts.tensor}, first), model);
}

// 12, 7, 4, 1, 12, 7 …: on its own, a rank with one pair would have nothing to contrast with.
std::vector<int64_t> pairs_of(int64_t ranks) {
  constexpr std::array<int64_t, 4> kPairs = {12, 7, 4, 1};
  std::vector<int64_t> pairs;
  for (int64_t rank = 0; rank < ranks; ++rank) pairs.push_back(kPairs[static_cast<size_t>(rank) % 4]);
  return pairs;
}

// Whether what the ranks found adds up to what one process finds; the first rank says so.
bool report(const std::vector<int64_t>& pairs, const std::vector<at::Tensor>& sums,
            const std::vector<at::Tensor>& expected, const sw::Group& world) {
  double difference = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    difference = std::max(difference, (sums[i] - expected[i]).abs().max().item<double>());
  const bool is_same = difference < kTolerance;
  if (world.rank() != 0) return is_same;
  std::cout << world.size() << " ranks, pairs per rank " << at::IntArrayRef(pairs) << '\n'
            << std::setprecision(12) << "loss: one process " << expected[0].item<double>()
            << ", added over the ranks " << sums[0].item<double>() << '\n';
  if (is_same) {
    std::cout << "ok: the distributed gradient is the one-process gradient\n";
  } else {
    std::cout << "the distributed gradient is not the one-process gradient: it differs by " << difference
              << '\n';
  }
  return is_same;
}

}  // namespace

int main() {
  const sw::Group world = sw::join();
  const std::vector<int64_t> pairs = pairs_of(world.size());
  const int64_t total = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
  at::manual_seed(0);  // the same model and batch on every rank
  const TwoTowers model;
  const Batch batch{.images = at::randn({total, kFeatures}, at::kDouble),
                    .texts = at::randn({total, kFeatures}, at::kDouble)};
  const auto rank = static_cast<size_t>(world.rank());
  const Batch mine{.images = batch.images.split_with_sizes(pairs)[rank],
                   .texts = batch.texts.split_with_sizes(pairs)[rank]};

  std::vector<at::Tensor> sums;
  for (const at::Tensor& addend : one_rank(model, mine, world))
    sums.push_back(sw::all_reduce(addend, {.group = world}));
  return report(pairs, sums, one_process(model, batch), world) ? 0 : 1;
}
