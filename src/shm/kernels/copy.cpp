#include "shm/kernels/copy.h"

#include <algorithm>
#include <array>

#include "shm/kernels/box_dims.h"
#include "shm/kernels/kernels.h"

namespace shardway::shm {
namespace {

constexpr int64_t kTo = 0;
constexpr int64_t kFrom = 1;

struct BoxCopy {
  const Kernels& kernels;
  const BoxLoops& loops;
  int64_t run;    // bytes of the innermost pieces
  int64_t outer;  // loops around those that a kernel runs
  bool streams;

  void copy_from(int64_t dim, std::byte* to, const std::byte* from) const {
    if (dim == outer) return copy_innermost(to, from);
    for (int64_t i = 0; i < loops.extent(dim); ++i) {
      copy_from(dim + 1, to + i * loops.stride(dim, kTo), from + i * loops.stride(dim, kFrom));
    }
  }

  void copy_innermost(std::byte* to, const std::byte* from) const {
    const int64_t left = loops.dims() - outer;
    if (left == 0) return kernels.copy(to, from, run);
    if (left == 2) return copy_tile(to, from);
    const CopiedRows rows{loops.extent(outer), run, loops.stride(outer, kTo), loops.stride(outer, kFrom)};
    if (!streams) return kernels.copy_rows(to, from, rows);
    for (int64_t r = 0; r < rows.rows; ++r) {
      kernels.stream(to + r * rows.to_stride, from + r * rows.from_stride, run);
    }
  }

  void copy_tile(std::byte* to, const std::byte* from) const {
    const int64_t slow = outer;
    const int64_t fast = outer + 1;
    kernels.copy_tile(to, from,
                      {.element_bytes = run,
                       .fast = loops.extent(fast),
                       .fast_to_stride = loops.stride(fast, kTo),
                       .fast_from_stride = loops.stride(fast, kFrom),
                       .slow = loops.extent(slow),
                       .slow_to_stride = loops.stride(slow, kTo),
                       .slow_from_stride = loops.stride(slow, kFrom)});
  }
};

// Brings the loop with the smallest steps in the input next to the innermost one. Returns whether there is
// one.
bool bring_input_neighbours_inward(BoxLoops& loops) {
  const int64_t last = loops.dims() - 1;
  int64_t nearest = last;
  for (int64_t d = 0; d < last; ++d) {
    const int64_t stride = loops.stride(d, kFrom);
    if (stride > 0 && stride < loops.stride(nearest, kFrom)) nearest = d;
  }
  if (nearest == last) return false;
  loops.move_inward(nearest, last - 1);
  return true;
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  const Kernels& kernels = current_kernels();
  (bytes < kStreamFromBytes ? kernels.copy : kernels.stream)(to, from, bytes);
}

void copy_twice(std::byte* to, std::byte* also_to, const std::byte* from, int64_t bytes) {
  current_kernels().copy_twice(to, also_to, from, bytes);
}

void stream_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  current_kernels().stream(to, from, bytes);
}

void copy_box(std::byte* to, std::span<const int64_t> to_strides, const std::byte* from,
              std::span<const int64_t> from_strides, std::span<const int64_t> extent, int64_t element_bytes,
              int64_t whole_bytes) {
  BoxLoops loops(extent, std::array{to_strides, from_strides});
  if (loops.is_empty()) return;
  const int64_t total = loops.volume() * element_bytes;
  const bool is_large = std::max(total, whole_bytes) >= kStreamFromBytes;
  int64_t run = element_bytes;
  int64_t kernel_loops = std::min<int64_t>(1, loops.dims());
  if (loops.has_run(element_bytes)) {
    if (loops.dims() <= 1) {
      const bool streams = is_large && total >= kStreamRowsFromBytes;
      return (streams ? stream_bytes : copy_bytes)(to, from, total);
    }
    run *= loops.extent(loops.dims() - 1);
    loops.drop_innermost();
  } else if (loops.dims() > 1 && bring_input_neighbours_inward(loops)) {
    kernel_loops = 2;
  }
  const BoxCopy copy{.kernels = current_kernels(),
                     .loops = loops,
                     .run = run,
                     .outer = loops.dims() - kernel_loops,
                     .streams = is_large && run >= kStreamRowsFromBytes};
  copy.copy_from(0, to, from);
}

void pack_box(std::byte* to, const std::byte* from, const FixedDims& from_strides, const FixedDims& extent,
              int64_t element_bytes) {
  copy_box(to, packed_strides(extent, element_bytes), from, from_strides, extent, element_bytes);
}

}  // namespace shardway::shm
