#include "ops/mesh/listed_facts.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "ops/call/block.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

wire::RankWords words_of(c10::DeviceType device, size_t rank) {
  return {.words = c10::DeviceTypeName(device, true), .rank = static_cast<int64_t>(rank)};
}

}  // namespace

at::Tensor flags_of(const std::vector<at::Tensor>& locals) {
  at::Tensor flags = zero_tensor({static_cast<int64_t>(locals.size())}, at::kByte);
  auto* data = flags.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < locals.size(); ++i) {
    const at::Tensor& local = locals[i];
    if (!local.defined()) continue;
    const bool requires_grad = at::GradMode::is_enabled() && local.requires_grad();
    const auto device = static_cast<uint8_t>(local.device().type());
    data[i] = static_cast<uint8_t>((device + 1) << 1 | (requires_grad ? 1 : 0));
  }
  return flags;
}

KnownInputs all_flags(const at::Tensor& mine, const Agreement& agreement, const Group& group) {
  if (KnownInputs known = agreement.known_inputs(); !known.empty()) {
    known[static_cast<size_t>(group.rank())] = mine;
    return known;
  }
  Transport& transport = group.transport();
  const Subject subject = moves_of("redistribute", agreement.number());
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& piece : mine.split(transport.slot_bytes()))
    pieces.push_back(transport.all_gather_block(piece, piece.numel(), subject).rows);
  return concatenated(pieces, 1).unbind();
}

std::vector<ListedFacts> facts_in(const KnownInputs& flags) {
  std::vector<ListedFacts> facts(static_cast<size_t>(flags[0].numel()));
  std::vector<size_t> first(facts.size());  // rank that has a part
  for (size_t rank = 0; rank < flags.size(); ++rank) {
    const auto* data = flags[rank].const_data_ptr<uint8_t>();
    for (size_t i = 0; i < facts.size(); ++i) {
      if (data[i] == 0) continue;
      const auto device = static_cast<c10::DeviceType>((data[i] >> 1) - 1);
      if (!facts[i].device) first[i] = rank;
      if (facts[i].device.value_or(device) != device)
        raise_if_any(wire::disagreement_on(c10::str("device of tensor ", i), Collective::redistribute,
                                           words_of(*facts[i].device, first[i]), words_of(device, rank)));
      facts[i].device = device;
      facts[i].wants_gradient = facts[i].wants_gradient || (data[i] & 1) != 0;
    }
  }
  return facts;
}

}  // namespace shardway
