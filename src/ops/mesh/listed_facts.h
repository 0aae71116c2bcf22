// What the ranks tell one another about the tensors of a list before they move them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "ops/call/header.h"

namespace shardway {

// What this rank says about every tensor, one byte each: whether it requires grad, and on which device this
// rank's part is. A part that this rank does not have is undefined.
at::Tensor flags_of(const std::vector<at::Tensor>& locals);

// Every rank's flags, by rank. They came with the comparison, unless there are too many for a block. Then
// this is collective.
KnownInputs all_flags(const at::Tensor& mine, const Agreement& agreement, const Group& group);

// Facts about one tensor, from what all ranks said about it.
struct ListedFacts {
  bool wants_gradient = false;
  std::optional<c10::DeviceType> device = std::nullopt;
};

// Throws the same c10::ValueError on every rank if two ranks have a tensor on different devices.
std::vector<ListedFacts> facts_in(const KnownInputs& flags);

}  // namespace shardway
