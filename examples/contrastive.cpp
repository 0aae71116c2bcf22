// A contrastive (CLIP-like) loss over batches whose size differs per rank.
//
// Every rank embeds its own pairs, gathers the embeddings of all ranks and takes the loss of its own rows
// against all columns. The losses of the ranks add up to the loss of one process with the whole batch, and
// so do the gradients: all_gather_v passes back what every other rank's loss says about a rank's rows.
// The ranks are threads of this program.
#include <ATen/ATen.h>
#include <shardway/shardway.h>
#include <torch/csrc/autograd/autograd.h>

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

}  // namespace

int main() {
  const std::vector<int64_t> pairs = {12, 7, 4,
                                      1};  // on its own, the last rank would have nothing to contrast with
  const int64_t total = std::accumulate(pairs.begin(), pairs.end(), int64_t{0});
  at::manual_seed(0);
  const TwoTowers model;
  const Batch batch{.images = at::randn({total, kFeatures}, at::kDouble),
                    .texts = at::randn({total, kFeatures}, at::kDouble)};
  const auto images = batch.images.split_with_sizes(pairs);
  const auto texts = batch.texts.split_with_sizes(pairs);
  const std::vector<at::Tensor> expected = one_process(model, batch);

  std::vector<std::vector<at::Tensor>> found(pairs.size());
  sw::run_as_threads(static_cast<int64_t>(pairs.size()), [&](const sw::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    found[rank] = one_rank(model, {.images = images[rank], .texts = texts[rank]}, group);
  });

  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const auto& results : found) loss += results[0];
  double difference = (loss - expected[0]).abs().item<double>();
  for (size_t i = 1; i < expected.size(); ++i) {
    at::Tensor sum = at::zeros_like(expected[i]);
    for (const auto& results : found) sum += results[i];
    difference = std::max(difference, (sum - expected[i]).abs().max().item<double>());
  }

  std::cout << pairs.size() << " ranks, pairs per rank " << at::IntArrayRef(pairs) << '\n'
            << std::setprecision(12) << "loss: one process " << expected[0].item<double>()
            << ", added over the ranks " << loss.item<double>() << '\n'
            << std::setprecision(2) << "largest difference from the one-process gradient " << difference
            << '\n';
  if (!(difference < kTolerance)) {
    std::cout << "the distributed gradient is not the one-process gradient\n";
    return 1;
  }
  std::cout << "ok: the distributed gradient is the one-process gradient\n";
}
