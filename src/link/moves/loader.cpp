#include "link/moves/loader.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

#include "ops/call/dtypes.h"
#include "transport/memory/tensors.h"

namespace shardway::link {
namespace {

void make_at_least(at::Tensor& buffer, int64_t bytes) {
  if (!buffer.defined() || buffer.numel() < bytes) buffer = empty_tensor({bytes}, at::kByte);
}

at::Tensor viewed(const at::Tensor& buffer, int64_t begin, int64_t bytes, at::ScalarType dtype,
                  at::IntArrayRef shape) {
  return buffer.narrow(0, begin, bytes).view(dtype).view(shape);
}

}  // namespace

int64_t LoadPiece::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t bytes_of(const LoadPieces& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), int64_t{0},
                         [](int64_t sum, const LoadPiece& piece) { return sum + piece.bytes(); });
}

void Loader::make_room(const LoadPieces& pieces) {
  make_at_least(buffer_, bytes_of(pieces));
  for (const LoadPiece& piece : pieces) {
    const at::ScalarType wanted = scalar_type_of(loads_.at(piece.name).dtype);
    if (wanted != piece.dtype)
      make_at_least(cast_, piece.elements() * static_cast<int64_t>(c10::elementSize(wanted)));
  }
}

std::vector<at::Tensor> Loader::places(const LoadPieces& pieces) const {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return c10::elementSize(pieces[a].dtype) > c10::elementSize(pieces[b].dtype);
  });
  std::vector<at::Tensor> found(pieces.size());
  int64_t begin = 0;
  for (const size_t i : order) {
    const LoadPiece& piece = pieces[i];
    found[i] = viewed(buffer_, begin, piece.bytes(), piece.dtype, piece.shape);
    begin += piece.bytes();
  }
  return found;
}

void Loader::take(const LoadPieces& pieces, const std::vector<at::Tensor>& places) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < pieces.size() && !failure_; ++i) {
    const Load& load = loads_.at(pieces[i].name);
    try {
      load.function(pieces[i].name, as_wanted(places[i], load.dtype));
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      failed_name_ = pieces[i].name;
    }
  }
}

at::Tensor Loader::as_wanted(const at::Tensor& piece, DType dtype) const {
  const at::ScalarType wanted = scalar_type_of(dtype);
  if (piece.scalar_type() == wanted) return piece;
  const int64_t bytes = piece.numel() * static_cast<int64_t>(c10::elementSize(wanted));
  return viewed(cast_, 0, bytes, wanted, piece.sizes()).copy_(piece);
}

}  // namespace shardway::link
