#include "ops/call/block.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>

#include "ops/call/arguments.h"
#include "transport/memory/warm_memory.h"

namespace shardway {

using wire::kProblemBytes;
using wire::line_bytes;

int64_t row_bytes(const Group& group) {
  const int64_t bytes = line_bytes(group.size()) + std::max(group.transport().slot_bytes(), kProblemBytes);
  return (bytes + 63) / 64 * 64;
}

Wanted wanted_of(const Call& call, const Group& group) {
  switch (call.collective) {
    case Collective::all_gather_v:
    case Collective::all_reduce:
      return Wanted::whole;
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
    case Collective::gather_v:
      return Wanted::parts;
    case Collective::broadcast:
      return call.root == group.rank() ? Wanted::whole : Wanted::nothing;
    case Collective::scatter_v:
      return call.root == group.rank() ? Wanted::parts : Wanted::nothing;
    default:
      return call.wanted;
  }
}

namespace {

// Whether x travels in the block.
bool fits_in_slot(const Call& call, const Group& group, int64_t slot_bytes) {
  const Wanted wanted = wanted_of(call, group);
  if (slot_bytes < 0 || wanted == Wanted::nothing || !call.x.is_cpu()) return false;
  const int64_t most_bytes = wanted == Wanted::whole ? slot_bytes : slot_bytes / group.size();
  return static_cast<int64_t>(call.x.nbytes()) <= most_bytes;
}

// A block with room for `slot_bytes`, its line zero but for the op.
at::Tensor new_block(const Call& call, const Group& group, int64_t slot_bytes) {
  const int64_t line = line_bytes(group.size());
  at::Tensor bytes = warm_empty({line + slot_bytes}, at::kByte);
  std::memset(bytes.mutable_data_ptr<uint8_t>(), 0, static_cast<size_t>(line));
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header() = BlockHeader{};
  block.header().collective = static_cast<uint8_t>(call.collective);
  block.header().root = call.root;
  block.header().list_length =
      call.list_length < 0 ? wire::kUnknownLength : static_cast<uint32_t>(call.list_length);
  if (call.backward_of) {
    block.header().backward_of = static_cast<uint8_t>(call.backward_of->collective) + 1;
    block.header().forward_number = call.backward_of->number;
  }
  return bytes;
}

}  // namespace

at::Tensor text_block(const Call& call, const Group& group, const std::string& text) {
  const int64_t length = std::min(static_cast<int64_t>(text.size()), kProblemBytes);
  at::Tensor bytes = new_block(call, group, length);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header().slot_bytes = length;
  std::memcpy(block.slot(), text.data(), static_cast<size_t>(length));
  return bytes;
}

namespace {

at::Tensor problem_block(const Call& call, const Group& group) {
  at::Tensor bytes = text_block(call, group, call.problem);
  Block(bytes.mutable_data_ptr<uint8_t>(), group.size()).header().has_problem = 1;
  return bytes;
}

// The block of a rank that brings no tensor.
at::Tensor bare_block(const Call& call, const Group& group) {
  at::Tensor bytes = new_block(call, group, 0);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header().has_tensor = 0;
  block.header().dim_without_tensor = call.dim;
  if (call.hash) block.hash() = *call.hash;
  return bytes;
}

at::Tensor call_block(const Call& call, const Group& group, int64_t slot_bytes) {
  const bool is_in_slot = fits_in_slot(call, group, slot_bytes);
  const int64_t payload_bytes = is_in_slot ? static_cast<int64_t>(call.x.nbytes()) : 0;
  at::Tensor bytes = new_block(call, group, payload_bytes);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  BlockHeader& header = block.header();
  header.dtype = static_cast<int8_t>(call.x.scalar_type());
  header.device = static_cast<int8_t>(call.x.device().type());
  header.op = static_cast<uint8_t>(call.op);
  header.grad = static_cast<uint8_t>(call.grad);
  header.requires_grad = call.requires_grad();
  header.dim = static_cast<uint8_t>(call.dim);
  header.ndim = static_cast<uint8_t>(call.x.dim());
  header.out_size = call.out_size;
  std::copy(call.x.sizes().begin(), call.x.sizes().end(), header.shape.begin());
  header.has_sizes = !call.sizes.empty();
  header.has_recv_sizes = !call.recv_sizes.empty();
  std::copy(call.sizes.begin(), call.sizes.end(), block.sizes());
  if (call.hash) block.hash() = *call.hash;
  std::copy(call.recv_sizes.begin(), call.recv_sizes.end(), block.recv_sizes());
  if (is_in_slot) header.slot_bytes = payload_bytes;
  if (payload_bytes > 0) {
    const at::Tensor payload = materialized(call.x).contiguous();
    std::memcpy(block.slot(), payload.const_data_ptr(), static_cast<size_t>(payload_bytes));
  }
  return bytes;
}

}  // namespace

at::Tensor block_of(const Call& call, const Group& group, int64_t slot_bytes) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!call.problem.empty()) return problem_block(call, group);
  return call.x.defined() ? call_block(call, group, slot_bytes) : bare_block(call, group);
}

}  // namespace shardway
