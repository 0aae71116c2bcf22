// The collectives that only move data.
#include <ATen/ATen.h>

#include <optional>

#include "c10d_calls/memory.h"
#include "c10d_calls/memory_collectives.h"
#include "c10d_calls/moves.h"

namespace shardway::backend {
namespace {

int64_t bytes_in(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

std::vector<Span> one_for(int64_t rank, int64_t size, int64_t bytes) {
  std::vector<Span> spans(static_cast<size_t>(size));
  spans[static_cast<size_t>(rank)].bytes = bytes;
  return spans;
}

// The whole of x to every rank.
BytesExchange to_all(const at::Tensor& x, int64_t size) {
  return {.input = bytes_of(x),
          .sends = std::vector(static_cast<size_t>(size), Span{.begin = 0, .bytes = bytes_in(x)})};
}

std::vector<Span> nothing_for(int64_t size) { return std::vector<Span>(static_cast<size_t>(size)); }

}  // namespace

void MemoryCollectives::barrier() {
  table_.run(group_, Collective::dist_barrier, [] { return Prepared{}; });
}

void MemoryCollectives::broadcast(const at::Tensor& t, int64_t root) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_broadcast, [&] {
    Terms terms = broadcast_terms(place(), t, root);
    BytesExchange exchange{.sends = nothing_for(size())};
    if (rank() == root) {
      x = packed(t);
      exchange = to_all(x, size());
      exchange.to.parts = nothing_for(size());
    } else {
      to.emplace(t);
      exchange.to = {.base = to->data(), .parts = one_for(root, size(), bytes_in(t))};
    }
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  if (to) to->finish();
}

void MemoryCollectives::all_gather(const Tensors& outputs, const at::Tensor& input) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_all_gather, [&] {
    Terms terms = all_gather_terms(place(), outputs, input);
    x = packed(input);
    to.emplace(outputs);
    BytesExchange exchange = to_all(x, size());
    exchange.to = to->target();
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void MemoryCollectives::all_gather_single(const at::Tensor& output, const at::Tensor& input) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_all_gather, [&] {
    Terms terms = all_gather_single_terms(place(), output, input);
    x = packed(input);
    to.emplace(output);
    BytesExchange exchange = to_all(x, size());
    exchange.to = {.base = to->data(),
                   .parts = spans_of(terms.sends, size(), static_cast<int64_t>(x.itemsize()))};
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void MemoryCollectives::gather(const Tensors& outputs, const at::Tensor& input, int64_t root) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_gather, [&] {
    Terms terms = gather_terms(place(), outputs, input, root);
    x = packed(input);
    BytesExchange exchange{.input = bytes_of(x),
                           .sends = one_for(root, size(), bytes_in(x)),
                           .to = {.parts = nothing_for(size())}};
    if (rank() == root) {
      to.emplace(outputs);
      exchange.to = to->target();
    }
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  if (to) to->finish();
}

void MemoryCollectives::scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_scatter, [&] {
    Terms terms = scatter_terms(place(), output, inputs, root);
    to.emplace(output);
    BytesExchange exchange{.sends = nothing_for(size()),
                           .to = {.base = to->data(), .parts = one_for(root, size(), bytes_in(output))}};
    if (rank() == root) {
      x = joined(inputs);
      exchange.input = bytes_of(x);
      exchange.sends = spans_of(terms.sends, size(), static_cast<int64_t>(x.itemsize()));
    }
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void MemoryCollectives::all_to_all(const Tensors& outputs, const Tensors& inputs) {
  at::Tensor x;
  std::optional<Outputs> to;
  table_.run(group_, Collective::dist_all_to_all, [&] {
    Terms terms = all_to_all_terms(place(), outputs, inputs);
    x = joined(inputs);
    to.emplace(outputs);
    const BytesExchange exchange{.input = bytes_of(x),
                                 .sends = spans_of(terms.sends, size(), static_cast<int64_t>(x.itemsize())),
                                 .to = to->target()};
    return Prepared{std::move(terms), contiguous_of(exchange, rank())};
  });
  to->finish();
}

void MemoryCollectives::all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                                          const std::vector<int64_t>& output_splits,
                                          const std::vector<int64_t>& input_splits) {
  at::Tensor x;
  std::optional<Output> to;
  table_.run(group_, Collective::dist_all_to_all, [&] {
    Terms terms = all_to_all_single_terms(place(), output, input, output_splits, input_splits);
    x = packed(input);
    to.emplace(output);
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
