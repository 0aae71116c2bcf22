// The collectives that only move data.
#include <ATen/ATen.h>

#include <numeric>
#include <optional>

#include "backend/collectives.h"
#include "backend/memory.h"
#include "backend/moves.h"

namespace shardway::backend {
namespace {

int64_t bytes_in(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

std::vector<Span> one_for(int64_t rank, int64_t size, int64_t bytes) {
  std::vector<Span> spans(static_cast<size_t>(size));
  spans[static_cast<size_t>(rank)].bytes = bytes;
  return spans;
}

void check_dtypes(const at::Tensor& input, const at::Tensor& output) {
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(), "the input has ",
                    c10::getDtypeNames(input.scalar_type()).first, ", but the output ",
                    c10::getDtypeNames(output.scalar_type()).first);
}

// The whole of x to every rank.
BytesExchange to_all(const at::Tensor& x, int64_t size) {
  return {.input = bytes_of(x),
          .sends = std::vector(static_cast<size_t>(size), Span{.begin = 0, .bytes = bytes_in(x)})};
}

std::vector<Span> nothing_for(int64_t size) { return std::vector<Span>(static_cast<size_t>(size)); }

// The elements that go to or come from each rank.
Counts split_counts(const char* name, const at::Tensor& t, const std::vector<int64_t>& splits, int64_t size) {
  const int64_t rows = t.dim() == 0 ? t.numel() : t.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, name, " has ", rows, " rows, which ", size,
                      " ranks cannot share equally");
    return {.each = t.numel() / size};
  }
  TORCH_CHECK_VALUE(static_cast<int64_t>(splits.size()) == size, name, " has ", splits.size(),
                    " split sizes for ", size, " ranks");
  for (const int64_t split : splits)
    TORCH_CHECK_VALUE(split >= 0, name, " has the negative split size ", split);
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(total == rows, name, " has ", rows, " rows, but its split sizes add up to ", total);
  Counts counts;
  for (const int64_t split : splits) counts.by_rank.push_back(rows == 0 ? 0 : split * (t.numel() / rows));
  return counts;
}

}  // namespace

void Collectives::check_root(int64_t root) const {
  TORCH_CHECK_VALUE(root >= 0 && root < size(), "the root ", root, " is not among the ", size(), " ranks");
}

void Collectives::barrier() {
  table_.run(group_, Collective::dist_barrier, [] { return Prepared{}; });
}

void Collectives::broadcast(const at::Tensor& t, int64_t root) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_broadcast, [&] {
    check_root(root);
    check_tensor(t);
    const Counts count{.each = t.numel()};
    BytesExchange exchange{.sends = nothing_for(size())};
    if (rank() == root) {
      x = packed(t);
      exchange = to_all(x, size());
      exchange.to.parts = nothing_for(size());
    } else {
      to.emplace(t);
      exchange.to = {.base = to->data(), .parts = one_for(root, size(), bytes_in(t))};
    }
    return Prepared{{.dtype = t.scalar_type(), .root = root, .sends = count, .takes = count},
                    contiguous_of(exchange, rank())};
  });
  if (to) to->finish();
}

void Collectives::all_gather(const Tensors& outputs, const at::Tensor& input) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_all_gather, [&] {
    check_tensor(input);
    check_list(outputs, size(), input.scalar_type());
    x = packed(input);
    to.emplace(outputs);
    BytesExchange exchange = to_all(x, size());
    exchange.to = to->target();
    return Prepared{
        {.dtype = input.scalar_type(), .sends = {.each = input.numel()}, .takes = counts_of(outputs)},
        contiguous_of(exchange, rank())};
  });
  to->finish();
}

void Collectives::all_gather_single(const at::Tensor& output, const at::Tensor& input) {
  at::Tensor x;
  std::optional<Output> to;
  const Counts count{.each = input.defined() ? input.numel() : 0};
  table_.run(group_, Collective::dist_all_gather, [&] {
    check_tensor(input);
    check_tensor(output);
    check_dtypes(input, output);
    TORCH_CHECK_VALUE(output.numel() == input.numel() * size(), "the output has ", output.numel(),
                      " elements, but ", size(), " ranks with inputs of ", input.numel(), " give ",
                      input.numel() * size());
    x = packed(input);
    to.emplace(output);
    BytesExchange exchange = to_all(x, size());
    exchange.to = {.base = to->data(), .parts = spans_of(count, size(), static_cast<int64_t>(x.itemsize()))};
    return Prepared{{.dtype = input.scalar_type(), .sends = count, .takes = count},
                    contiguous_of(exchange, rank())};
  });
  to->finish();
}

void Collectives::gather(const Tensors& outputs, const at::Tensor& input, int64_t root) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_gather, [&] {
    check_root(root);
    check_tensor(input);
    x = packed(input);
    const Counts count{.each = input.numel()};
    Terms terms{.dtype = input.scalar_type(), .root = root, .sends = count, .takes = count};
    BytesExchange exchange{.input = bytes_of(x),
                           .sends = one_for(root, size(), bytes_in(x)),
                           .to = {.parts = nothing_for(size())}};
    if (rank() == root) {
      check_list(outputs, size(), input.scalar_type());
      to.emplace(outputs);
      terms.takes = counts_of(outputs);
      exchange.to = to->target();
    } else {
      TORCH_CHECK_VALUE(outputs.empty(), "a rank other than the root has a list of outputs");
    }
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  if (to) to->finish();
}

void Collectives::scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_scatter, [&] {
    check_root(root);
    check_tensor(output);
    to.emplace(output);
    const Counts count{.each = output.numel()};
    Terms terms{.dtype = output.scalar_type(), .root = root, .sends = count, .takes = count};
    BytesExchange exchange{.sends = nothing_for(size()),
                           .to = {.base = to->data(), .parts = one_for(root, size(), bytes_in(output))}};
    if (rank() == root) {
      check_list(inputs, size(), output.scalar_type());
      x = joined(inputs);
      terms.sends = counts_of(inputs);
      exchange.input = bytes_of(x);
      exchange.sends = spans_of(terms.sends, size(), static_cast<int64_t>(x.itemsize()));
    } else {
      TORCH_CHECK_VALUE(inputs.empty(), "a rank other than the root has a list of inputs");
    }
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void Collectives::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_all_to_all, [&] {
    TORCH_CHECK_VALUE(!inputs.empty(), "the list of inputs is empty");
    check_tensor(inputs.front());
    check_list(inputs, size(), inputs.front().scalar_type());
    check_list(outputs, size(), inputs.front().scalar_type());
    x = joined(inputs);
    to.emplace(outputs);
    Terms terms{.dtype = x.scalar_type(), .sends = counts_of(inputs), .takes = counts_of(outputs)};
    const BytesExchange exchange{.input = bytes_of(x),
                                 .sends = spans_of(terms.sends, size(), static_cast<int64_t>(x.itemsize())),
                                 .to = to->target()};
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void Collectives::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                    const std::vector<int64_t>& output_splits,
                                    const std::vector<int64_t>& input_splits) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_all_to_all, [&] {
    check_tensor(input);
    check_tensor(output);
    check_dtypes(input, output);
    x = packed(input);
    to.emplace(output);
    Terms terms{.dtype = x.scalar_type(),
                .sends = split_counts("the input", input, input_splits, size()),
                .takes = split_counts("the output", output, output_splits, size())};
    const auto element_bytes = static_cast<int64_t>(x.itemsize());
    const BytesExchange exchange{
        .input = bytes_of(x),
        .sends = spans_of(terms.sends, size(), element_bytes),
        .to = {.base = to->data(), .parts = spans_of(terms.takes, size(), element_bytes)}};
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

}  // namespace shardway::backend
