// Sixteen bytes at a time, which the compiler maps to what every machine of the architecture has.
#include "shm/copy_loops.h"
#include "shm/kernels.h"
#include "shm/reduce_table.h"

namespace shardway::shm {
namespace {

struct Portable {
  static constexpr int kBytes = 16;
  using F16 = F16InIntegers<kBytes>;
  using V = Vector<uint64_t, kBytes>;

  static void stream(std::byte* to, V v) { store(to, v); }
  static void fence() {}
};

}  // namespace

constexpr Kernels kPortableKernels = {.copy = copy_loop<Portable>,
                                      .stream = stream_loop<Portable>,
                                      .copy_rows = copy_rows_loop<Portable>,
                                      .copy_tile = copy_tile_loop<Portable>,
                                      .reduce_loop = reduce_loop<Portable>};

}  // namespace shardway::shm
