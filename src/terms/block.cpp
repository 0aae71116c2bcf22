#include "terms/block.h"

#include <algorithm>
#include <cstring>

namespace shardway::wire {
namespace {

// Whether one rank has what the others get, or gets what they have.
bool has_root(Collective collective) {
  switch (collective) {
    case Collective::broadcast:
    case Collective::gather_v:
    case Collective::scatter_v:
    case Collective::dist_broadcast:
    case Collective::dist_reduce:
    case Collective::dist_gather:
    case Collective::dist_scatter:
      return true;
    default:
      return false;
  }
}

// Whether the call splits or joins tensors along a dim.
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

// Whether sizes say how the rank's own tensor is split.
bool splits_own(Collective collective) {
  return collective == Collective::all_to_all_v || collective == Collective::scatter_v ||
         collective == Collective::reduce_scatter_v;
}

const char* why_no_dense(const BlockView& block, int64_t element_bytes) {
  const BlockHeader& header = block.header();
  const int64_t least_dims = has_dim(block.collective()) ? 1 : 0;
  const bool has_such_dim = header.dim == 0 || (header.dim > 0 && header.dim < header.ndim);
  if (header.ndim < least_dims || !has_such_dim) return "its tensor has no such dim";
  const int64_t bytes = dense_bytes(block.shape(), header.ndim, element_bytes);
  if (bytes < 0) return "its shape is invalid";
  if (header.slot_bytes >= 0 && header.slot_bytes != bytes)
    return "its payload does not have the size of its shape";
  return nullptr;
}

// The shape of a sparse tensor may be larger than memory.
const char* why_no_sparse(const BlockView& block) {
  const BlockHeader& header = block.header();
  const bool is_shape =
      std::all_of(block.shape(), block.shape() + header.ndim, [](int64_t extent) { return extent >= 0; });
  if (!is_shape || header.dim < 0 || header.dim > header.ndim) return "its shape is invalid";
  return nullptr;
}

const char* why_no_tensor(const BlockView& block, const Kinds& kinds) {
  const BlockHeader& header = block.header();
  const int64_t element_bytes = kinds.bytes_of_dtype(header.dtype);
  if (element_bytes <= 0) return "there is no such dtype";
  if (header.device < 0 || header.device >= kinds.devices) return "there is no such device";
  return block.collective() == Collective::dist_sparse_all_reduce ? why_no_sparse(block)
                                                                  : why_no_dense(block, element_bytes);
}

const char* why_no_counts(const BlockView& block) {
  for (int64_t rank = 0; rank < block.ranks(); ++rank) {
    for (const int64_t count : {block.sent_to(rank), block.expected_of(rank)}) {
      if (count < 0 || count > kMostElements) return "its element counts are invalid";
    }
  }
  return nullptr;
}

const char* why_no_sizes(const BlockView& block) {
  if (is_of_torch(block.collective())) return why_no_counts(block);
  const BlockHeader& header = block.header();
  const int64_t total = header.has_sizes ? total_of(block.sizes(), block.ranks()) : 0;
  if (total < 0) return "its sizes are invalid";
  if (splits_own(block.collective()) && (!header.has_sizes || total != block.extent()))
    return "its sizes do not add up to its tensor";
  const bool counts = block.collective() == Collective::all_to_all_v && header.has_recv_sizes;
  return counts && total_of(block.recv_sizes(), block.ranks()) < 0 ? "its recv_sizes are invalid" : nullptr;
}

BlockHeader header_of(const Draft& draft) {
  BlockHeader header = draft.header;
  header.ndim = static_cast<uint8_t>(draft.shape.size());
  header.has_hash = draft.hash != nullptr;
  header.has_sizes = !draft.sizes.empty();
  header.has_recv_sizes = !draft.recv_sizes.empty();
  if (draft.text)
    header.slot_bytes = static_cast<int32_t>(std::min<size_t>(draft.text->size(), kProblemBytes));
  return header;
}

}  // namespace

int64_t bytes_of(const Draft& draft, int64_t ranks) {
  const BlockHeader header = header_of(draft);
  return line_bytes(header, ranks) + std::max(header.slot_bytes, 0);
}

BlockView write(const Draft& draft, int64_t ranks, uint8_t* to) {
  const BlockView block(to, ranks);
  const BlockHeader header = header_of(draft);
  // Clears the padding before the slot; the rest of the line is overwritten below.
  std::memset(to + line_bytes(header, ranks) - kBlockAlignment, 0, kBlockAlignment);
  block.header() = header;
  if (draft.hash != nullptr) std::memcpy(&block.hash(), draft.hash, sizeof(CallHash));
  std::copy(draft.shape.begin(), draft.shape.end(), block.shape());
  std::copy(draft.sizes.begin(), draft.sizes.end(), block.sizes());
  std::copy(draft.recv_sizes.begin(), draft.recv_sizes.end(), block.recv_sizes());
  if (draft.text) std::copy_n(draft.text->begin(), header.slot_bytes, block.slot());
  return block;
}

int64_t block_bytes(const uint8_t* data, int64_t bytes, int64_t ranks) {
  if (bytes < int64_t{sizeof(BlockHeader)}) return 0;
  BlockHeader header;
  std::memcpy(&header, data, sizeof(header));
  if (header.ndim > kMaxDims) return 0;
  const int64_t line = line_bytes(header, ranks);
  if (line > bytes || header.slot_bytes > bytes - line) return 0;
  return std::min(aligned(line + std::max<int64_t>(header.slot_bytes, 0)), bytes);
}

const char* why_no_block(uint8_t* data, int64_t bytes, int64_t ranks, Slot slot, const Kinds& kinds) {
  const BlockView block(data, ranks);
  if (bytes < int64_t{sizeof(BlockHeader)} || block.header().magic != kMagic)
    return "it made another call, or runs another version of shardway";
  const BlockHeader& header = block.header();
  if (header.collective >= kCollectives || header.backward_of > kCollectives)
    return "there is no such collective";
  if (header.ndim > kMaxDims) return "it has too many dims";
  const int64_t room = bytes - line_bytes(header, ranks);
  if (room < 0 || header.slot_bytes < -1 || header.slot_bytes > room)
    return "it claims more bytes than it has";
  if (header.has_problem || slot == Slot::words) return header.slot_bytes >= 0 ? nullptr : "it has no text";
  if (header.op >= kOpNames.size() || header.grad >= kGrads) return "there is no such op or gradient";
  const bool is_gradient = header.backward_of != 0 && !header.has_tensor;
  const int64_t least_root = has_root(block.collective()) && !is_gradient ? 0 : -1;
  if (header.root < least_root || header.root >= ranks) return "its root is not a rank";
  if (header.out_size < -1) return "its out has a negative size";
  if (!header.has_tensor) {
    const bool needs_one = is_of_torch(block.collective()) && block.collective() != Collective::dist_barrier;
    if (needs_one) return "it has no tensor";
    const bool is_bare = header.ndim == 0 && header.dtype == 0 && header.device == 0 &&
                         header.slot_bytes < 0 && !header.has_sizes && !header.has_recv_sizes;
    return is_bare ? nullptr : "it describes a tensor that it does not have";
  }
  if (const char* why = why_no_tensor(block, kinds)) return why;
  return why_no_sizes(block);
}

}  // namespace shardway::wire
