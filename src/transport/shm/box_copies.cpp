#include "transport/shm/box_copies.h"

#include <array>

#include "shm/kernels/box_dims.h"
#include "shm/kernels/copy.h"

namespace shardway {

void BoxCopies::add(std::byte* to, const shm::FixedDims& to_strides, const std::byte* from,
                    const shm::FixedDims& from_strides, const shm::FixedDims& extent, int64_t element_bytes) {
  const std::array<shm::Strides, 2> operands = {to_strides, from_strides};
  const shm::BoxLoops loops(extent, operands);
  if (loops.is_empty()) return;
  const bool has_rows = loops.dims() == 0 || loops.has_run(element_bytes);
  if (!has_rows || loops.dims() > 2) {
    scattered_.push_back({.to = to,
                          .from = from,
                          .to_strides = to_strides,
                          .from_strides = from_strides,
                          .extent = extent,
                          .element_bytes = element_bytes});
    return;
  }
  shm::CopiedRows rows{.rows = 1, .run = element_bytes};
  if (loops.dims() > 0) rows.run *= loops.extent(loops.dims() - 1);
  if (loops.dims() == 2) {
    rows.rows = loops.extent(0);
    rows.to_stride = loops.stride(0, 0);
    rows.from_stride = loops.stride(0, 1);
  }
  in_rows_.push_back({.to = to, .from = from, .rows = rows});
}

void BoxCopies::run() const {
  const shm::Kernels& kernels = shm::current_kernels();
  for (const InRows& box : in_rows_) kernels.copy_rows(box.to, box.from, box.rows);
  for (const Scattered& box : scattered_)
    shm::copy_box(box.to, box.to_strides, box.from, box.from_strides, box.extent, box.element_bytes);
}

}  // namespace shardway
