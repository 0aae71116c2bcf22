#include "ops/call/block.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>

#include "ops/call/arguments.h"
#include "ops/call/capture.h"
#include "transport/common/torch_kinds.h"
#include "transport/memory/warm_memory.h"

namespace shardway {

using wire::kProblemBytes;

int64_t row_bytes(const Group& group) {
  const int64_t bytes =
      wire::longest_line(group.size()) + std::max(group.transport().slot_bytes(), kProblemBytes);
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

wire::Draft draft_of(const Call& call) {
  wire::Draft draft;
  draft.header.collective = static_cast<uint8_t>(call.collective);
  draft.header.root = static_cast<int32_t>(call.root);
  draft.header.list_length =
      call.list_length < 0 ? wire::kUnknownLength : static_cast<uint32_t>(call.list_length);
  if (call.backward_of) {
    draft.header.backward_of = static_cast<uint8_t>(call.backward_of->collective) + 1;
    draft.header.forward_number = call.backward_of->number;
  }
  return draft;
}

// The draft's block, with room for its slot.
at::Tensor written(const wire::Draft& draft, const Group& group) {
  at::Tensor bytes = warm_empty({wire::bytes_of(draft, group.size())}, at::kByte);
  wire::write(draft, group.size(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

at::Tensor problem_block(const Call& call, const std::string& problem, const Group& group) {
  wire::Draft draft = draft_of(call);
  draft.header.has_problem = 1;
  draft.text = problem;
  return written(draft, group);
}

// The block of a rank that brings no tensor.
at::Tensor bare_block(const Call& call, const Group& group) {
  wire::Draft draft = draft_of(call);
  draft.header.has_tensor = 0;
  draft.header.dim = static_cast<int32_t>(std::clamp<int64_t>(call.dim, INT32_MIN, INT32_MAX));
  if (call.hash) draft.hash = &*call.hash;
  return written(draft, group);
}

at::Tensor call_block(const Call& call, const Group& group, int64_t slot_bytes) {
  wire::Draft draft = draft_of(call);
  BlockHeader& header = draft.header;
  header.dtype = static_cast<int8_t>(call.x.scalar_type());
  header.device = static_cast<int8_t>(call.x.device().type());
  header.op = static_cast<uint8_t>(call.op);
  header.grad = static_cast<uint8_t>(call.grad);
  header.requires_grad = call.requires_grad();
  header.dim = static_cast<int32_t>(call.dim);
  header.out_size = call.out_size;
  draft.shape = {call.x.sizes().data(), call.x.sizes().size()};
  draft.sizes = call.sizes;
  draft.recv_sizes = call.recv_sizes;
  if (call.hash) draft.hash = &*call.hash;
  if (fits_in_slot(call, group, slot_bytes)) header.slot_bytes = static_cast<int32_t>(call.x.nbytes());
  at::Tensor bytes = written(draft, group);
  if (header.slot_bytes > 0) {
    const at::Tensor payload = materialized(call.x).contiguous();
    const BlockView block(bytes.mutable_data_ptr<uint8_t>(), group.size());
    std::memcpy(block.slot(), payload.const_data_ptr(), payload.nbytes());
  }
  return bytes;
}

}  // namespace

at::Tensor text_block(const Call& call, const Group& group, const std::string& text) {
  wire::Draft draft = draft_of(call);
  draft.text = text;
  return written(draft, group);
}

at::Tensor block_of(const Call& call, const Group& group, int64_t slot_bytes) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!call.problem.empty()) return problem_block(call, call.problem, group);
  if (Capture::current() != nullptr && call.requires_grad()) return problem_block(call, kNoGradient, group);
  return call.x.defined() ? call_block(call, group, slot_bytes) : bare_block(call, group);
}

void raise_if_any(const std::string& disagreement) { TORCH_CHECK_VALUE(disagreement.empty(), disagreement); }

void check_blocks(const Blocks& blocks, wire::Slot slot) {
  raise_if_any(wire::why_no_blocks(rows_of(blocks), blocks.bytes, slot, kinds_of_torch()));
}

}  // namespace shardway
