#include "backend/moves.h"

namespace shardway::backend {
namespace {

shm::Flat flat_of(std::span<const std::byte> input, const std::vector<Span>& sends) {
  shm::Flat flat{.input = input.data(), .input_bytes = static_cast<int64_t>(input.size())};
  for (const Span& send : sends) flat.sends.push_back({.begin = send.begin, .bytes = send.bytes});
  return flat;
}

}  // namespace

shm::Flat flat_of(const BytesExchange& exchange, int64_t rank) {
  shm::Flat flat = flat_of(exchange.input, exchange.sends);
  flat.output = exchange.to.base;
  for (size_t from = 0; from < exchange.to.parts.size(); ++from) {
    const Span& part = exchange.to.parts[from];
    const bool is_own = static_cast<int64_t>(from) == rank;
    flat.takes.push_back(
        {.from = is_own ? exchange.sends[from].begin : shm::kUnknown, .to = part.begin, .bytes = part.bytes});
  }
  return flat;
}

shm::Flat flat_of(const PartsReduction& reduction, int64_t rank) {
  const Span& own = reduction.parts[static_cast<size_t>(rank)];
  shm::Flat flat = flat_of(reduction.input, reduction.parts);
  flat.element_bytes = shm::bytes_of(reduction.how.element);
  flat.output = reduction.output;
  flat.combine = reduction.how;
  for (size_t from = 0; from < reduction.parts.size(); ++from)
    flat.takes.push_back({.from = own.begin, .to = 0, .bytes = own.bytes});
  return flat;
}

}  // namespace shardway::backend
