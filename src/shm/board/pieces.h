// Boxes cut into pieces that fit a slot. Whoever fills a slot and whoever empties it cut in the same way.
#pragma once

#include <cstdint>

#include "shm/kernels/dims.h"

namespace shardway::shm {

struct Piece {
  FixedDims offset = {};  // within the box
  FixedDims extent = {};
};

// Cuts along the first dim whose rows fit, row by row of the dims before it.
//   {3, 5} of 4 bytes, slots of 40 bytes: rows 0 and 1, then row 2.
//   {2, 5} of 4 bytes, slots of 12 bytes: 3 and 2 elements of row 0, 3 and 2 of row 1.
class Pieces {
 public:
  Pieces(const FixedDims& extent, int64_t element_bytes, int64_t slot_bytes);

  int64_t count() const { return count_; }
  Piece operator[](int64_t index) const;

 private:
  FixedDims extent_;
  size_t dim_ = 0;       // the dim that is cut
  int64_t rows_ = 1;     // rows of a piece along it
  int64_t per_row_ = 1;  // pieces along it
  int64_t count_ = 0;
};

}  // namespace shardway::shm
