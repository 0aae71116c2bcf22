#include "backend/moves.h"

#include "shm/calls/all_reduce.h"
#include "shm/kernels/copy.h"
#include "shm/kernels/reduce.h"

namespace shardway::backend {
namespace {

shm::Flat flat_of(const std::byte* input, int64_t input_bytes, const std::vector<Span>& sends) {
  shm::Flat flat{.element_bytes = 1, .input = input, .input_bytes = input_bytes};
  for (const Span& send : sends) flat.sends.push_back({.begin = send.begin, .bytes = send.bytes});
  return flat;
}

// Where in the input of `rank` the part of `to` begins.
int64_t begin_of(const Heard& heard, int64_t rank, int64_t to, int64_t element_bytes) {
  int64_t begin = 0;
  for (int64_t before = 0; before < to; ++before) begin += heard.sends(rank, before) * element_bytes;
  return begin;
}

void take_from_notes(const Heard& heard, int64_t rank, const Exchange& exchange, int64_t element_bytes) {
  for (size_t from = 0; from < exchange.to.parts.size(); ++from) {
    const Span& part = exchange.to.parts[from];
    if (part.bytes == 0) continue;
    const auto peer = static_cast<int64_t>(from);
    const bool is_whole = exchange.shares == Shares::whole;
    const int64_t begin = is_whole ? 0 : begin_of(heard, peer, rank, element_bytes);
    const std::byte* input = peer == rank ? exchange.input + begin : heard.input(peer, begin, part.bytes);
    shm::copy_bytes(exchange.to.base + part.begin, input, part.bytes);
  }
}

void combine_notes(const Heard& heard, int64_t size, const Span& part, std::byte* output,
                   const shm::Combine& how) {
  shm::Few<const std::byte*> addends;
  for (int64_t rank = 0; rank < size; ++rank) addends.push_back(heard.input(rank, part.begin, part.bytes));
  const int64_t count = part.bytes / shm::bytes_of(how.element);
  if (count > 0) shm::reduce(output, {addends.data(), addends.size()}, count, how);
}

void combine_parts(shm::Group& group, const Reduction& reduction) {
  const Span& own = reduction.parts[static_cast<size_t>(group.rank())];
  shm::Flat flat = flat_of(reduction.input, reduction.input_bytes, reduction.parts);
  flat.element_bytes = shm::bytes_of(reduction.how.element);
  flat.output = reduction.output;
  flat.combine = reduction.how;
  for (size_t rank = 0; rank < reduction.parts.size(); ++rank)
    flat.takes.push_back({.from = own.begin, .to = 0, .bytes = own.bytes});
  group.run(flat);
}

}  // namespace

void run(shm::Group& group, const Heard& heard, const Exchange& exchange, int64_t element_bytes) {
  if (heard.has_inputs()) return take_from_notes(heard, group.rank(), exchange, element_bytes);
  shm::Flat flat = flat_of(exchange.input, exchange.input_bytes, exchange.sends);
  flat.output = exchange.to.base;
  for (size_t from = 0; from < exchange.to.parts.size(); ++from) {
    const Span& part = exchange.to.parts[from];
    const bool is_own = static_cast<int64_t>(from) == group.rank();
    flat.takes.push_back(
        {.from = is_own ? exchange.sends[from].begin : shm::kUnknown, .to = part.begin, .bytes = part.bytes});
  }
  group.run(flat);
}

void run(shm::Group& group, const Heard& heard, const Reduction& reduction) {
  const Span& own = reduction.parts[static_cast<size_t>(group.rank())];
  if (heard.has_inputs()) {
    combine_notes(heard, group.size(), own, reduction.output, reduction.how);
  } else {
    combine_parts(group, reduction);
  }
}

void reduce_in_place(shm::Group& group, const Heard& heard, std::byte* memory, int64_t bytes,
                     const shm::Combine& how) {
  if (heard.has_inputs())
    return combine_notes(heard, group.size(), {.begin = 0, .bytes = bytes}, memory, how);
  group.run(shm::AllReduce{.input = memory, .output = memory, .bytes = bytes, .how = how});
}

}  // namespace shardway::backend
