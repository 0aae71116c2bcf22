#include "shm/board/pieces.h"

#include <algorithm>

namespace shardway::shm {

Pieces::Pieces(const FixedDims& extent, int64_t element_bytes, int64_t slot_bytes) : extent_(extent) {
  const int64_t elements = volume(extent);
  if (elements == 0) return;
  count_ = 1;
  if (elements * element_bytes <= slot_bytes) {
    dim_ = extent.size();
    return;
  }
  int64_t row_bytes = elements * element_bytes;  // of one index of dim_
  int64_t before = 1;                            // rows of the dims before it
  for (dim_ = 0;; ++dim_) {
    row_bytes /= extent[dim_];
    if (row_bytes <= slot_bytes) break;
    before *= extent[dim_];
  }
  rows_ = slot_bytes / row_bytes;
  per_row_ = (extent[dim_] + rows_ - 1) / rows_;
  count_ = before * per_row_;
}

Piece Pieces::operator[](int64_t index) const {
  Piece piece{.offset = FixedDims::zeros(extent_.size()), .extent = extent_};
  if (dim_ == extent_.size()) return piece;
  piece.offset[dim_] = index % per_row_ * rows_;
  piece.extent[dim_] = std::min(rows_, extent_[dim_] - piece.offset[dim_]);
  int64_t row = index / per_row_;
  for (size_t d = dim_; d-- > 0;) {
    piece.offset[d] = row % extent_[d];
    piece.extent[d] = 1;
    row /= extent_[d];
  }
  return piece;
}

}  // namespace shardway::shm
