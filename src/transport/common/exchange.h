// Blocks of plain bytes over a transport.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "transport/common/transport.h"
#include "transport/memory/tensors.h"

namespace shardway {

// Collective. Returns every rank's block in rank order; all blocks have the same length.
inline std::vector<std::byte> exchanged(Transport& transport, std::span<const std::byte> mine) {
  at::Tensor block = empty_tensor({static_cast<int64_t>(mine.size())}, at::kByte);
  std::memcpy(block.mutable_data_ptr(), mine.data(), mine.size());
  const Subject subject{.mark = shm::mark_of("exchange"), .name = "exchange", .words = [] {
                          return std::string("the making of a group");
                        }};
  const at::Tensor rows = transport.all_gather_block(block, block.numel(), subject).rows.contiguous();
  const auto* data = static_cast<const std::byte*>(rows.const_data_ptr());
  return {data, data + rows.numel()};
}

}  // namespace shardway
