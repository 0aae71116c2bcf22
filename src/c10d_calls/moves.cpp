#include "c10d_calls/moves.h"

namespace shardway::backend {
namespace {

shm::ContiguousCall contiguous_of(std::span<const std::byte> input, const std::vector<Span>& sends) {
  shm::ContiguousCall call{.input = input.data(), .input_bytes = static_cast<int64_t>(input.size())};
  for (const Span& send : sends) call.sends.push_back({.begin = send.begin, .bytes = send.bytes});
  return call;
}

}  // namespace

shm::ContiguousCall contiguous_of(const BytesExchange& exchange, int64_t rank) {
  shm::ContiguousCall call = contiguous_of(exchange.input, exchange.sends);
  call.output = exchange.to.base;
  for (size_t from = 0; from < exchange.to.parts.size(); ++from) {
    const Span& part = exchange.to.parts[from];
    const bool is_own = static_cast<int64_t>(from) == rank;
    call.takes.push_back(
        {.from = is_own ? exchange.sends[from].begin : shm::kUnknown, .to = part.begin, .bytes = part.bytes});
  }
  return call;
}

shm::ContiguousCall contiguous_of(const PartsReduction& reduction, int64_t rank) {
  const Span& own = reduction.parts[static_cast<size_t>(rank)];
  shm::ContiguousCall call = contiguous_of(reduction.input, reduction.parts);
  call.element_bytes = shm::bytes_of(reduction.how.element);
  call.output = reduction.output;
  call.combine = reduction.how;
  for (size_t from = 0; from < reduction.parts.size(); ++from)
    call.takes.push_back({.from = own.begin, .to = 0, .bytes = own.bytes});
  return call;
}

}  // namespace shardway::backend
