#include "terms/block.h"

#include <algorithm>
#include <cstring>

namespace shardway::wire {
namespace {

// One rank has what the others get, or gets what they have.
bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::gather_v ||
         collective == Collective::scatter_v;
}

// Splits or joins tensors along a dim.
bool has_dim(Collective collective) {
  switch (collective) {
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
    case Collective::gather_sizes:
    case Collective::gather_v:
    case Collective::scatter_v:
      return true;
    default:
      return false;
  }
}

// Its sizes say how the rank's own tensor is split.
bool splits_own(Collective collective) {
  return collective == Collective::all_to_all_v || collective == Collective::scatter_v ||
         collective == Collective::reduce_scatter_v;
}

const char* why_no_tensor(const BlockHeader& header, const Kinds& kinds) {
  const int64_t element_bytes = kinds.bytes_of_dtype(header.dtype);
  if (element_bytes <= 0) return "there is no such dtype";
  if (header.device < 0 || header.device >= kinds.devices) return "there is no such device";
  if (header.ndim > kMaxDims) return "it has too many dims";
  const int64_t least_dims = has_dim(static_cast<Collective>(header.collective)) ? 1 : 0;
  if (header.ndim < least_dims || (header.dim >= header.ndim && header.dim != 0))
    return "its tensor has no such dim";
  const int64_t bytes = dense_bytes(header.shape.data(), header.ndim, element_bytes);
  const auto* end = header.shape.data() + header.ndim;
  const bool is_zero_beyond =
      std::all_of(end, header.shape.data() + kMaxDims, [](int64_t e) { return e == 0; });
  if (bytes < 0 || !is_zero_beyond) return "its tensor cannot have such a shape";
  if (header.slot_bytes >= 0 && header.slot_bytes != bytes) return "its payload is not what its shape says";
  return nullptr;
}

const char* why_no_sizes(const BlockView& block, int64_t ranks) {
  const BlockHeader& header = block.header();
  const auto collective = static_cast<Collective>(header.collective);
  const int64_t total = header.has_sizes != 0 ? total_of(block.sizes(), ranks) : 0;
  if (total < 0) return "its sizes cannot be";
  if (splits_own(collective) && (header.has_sizes == 0 || total != header.shape[header.dim]))
    return "its sizes are not those of its tensor";
  const bool counts = collective == Collective::all_to_all_v && header.has_recv_sizes != 0;
  return counts && total_of(block.recv_sizes(), ranks) < 0 ? "its recv_sizes cannot be" : nullptr;
}

}  // namespace

int64_t block_bytes(const uint8_t* data, int64_t bytes, int64_t ranks) {
  const int64_t room = bytes - line_bytes(ranks);
  if (room < 0) return 0;
  BlockHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.slot_bytes > room) return 0;
  return std::min(aligned(line_bytes(ranks) + std::max<int64_t>(header.slot_bytes, 0)), bytes);
}

const char* why_no_block(uint8_t* data, int64_t bytes, int64_t ranks, Slot slot, const Kinds& kinds) {
  const BlockView block(data, ranks);
  const int64_t room = bytes - line_bytes(ranks);
  if (room < 0 || block.header().magic != kMagic)
    return "it made another call, or runs another version of shardway";
  const BlockHeader& header = block.header();
  if (header.collective >= kCollectives || header.backward_of > kCollectives)
    return "there is no such collective";
  if (header.slot_bytes < -1 || header.slot_bytes > room) return "it says that it is longer than it is";
  if (header.has_problem != 0 || slot == Slot::words)
    return header.slot_bytes >= 0 ? nullptr : "it has no words to say";
  if (header.op >= kOps || header.grad >= kGrads) return "there is no such op or gradient";
  const auto collective = static_cast<Collective>(header.collective);
  const bool is_gradient = header.backward_of != 0 && header.has_tensor == 0;
  const int64_t least_root = has_root(collective) && !is_gradient ? 0 : -1;
  if (header.root < least_root || header.root >= ranks) return "its root is no rank";
  if (header.out_size < -1) return "its out has a negative size";
  if (header.has_tensor == 0) {
    const bool is_bare = header.ndim == 0 && header.dtype == 0 && header.dim == 0 && header.slot_bytes < 0;
    return is_bare ? nullptr : "it describes a tensor that it does not have";
  }
  if (const char* why = why_no_tensor(header, kinds)) return why;
  return why_no_sizes(block, ranks);
}

}  // namespace shardway::wire
