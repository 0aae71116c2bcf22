// Boxes that a kernel copies or combines, as the table that it reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cuda/driver.h"
#include "shm/kernels/reduce.h"

namespace shardway::cuda {

// A box in a device's memory. Strides are in bytes, one per dim.
struct StridedBox {
  DeviceAddress address = 0;
  std::vector<int64_t> strides = {};
};

// Elements that land on `to`: copied from one box, or combined from several in their order.
struct BoxMove {
  std::vector<int64_t> extent = {};
  int64_t element_bytes = 0;
  StridedBox to = {};
  std::vector<StridedBox> from = {};
};

inline constexpr int kJobDims = 4;
inline constexpr int kMostJobs = 32;           // of one table
inline constexpr int kTableBytes = 4080;       // the most that a kernel takes is 4096
inline constexpr int kSmallTableBytes = 1024;  // of a table of few jobs, which takes less time to pass

// A job is a part of a box whose elements are counted in units: runs of bytes that one thread moves at once.
// Its dims are numbered from the innermost. In memory, `sources` JobSources follow.
struct MoveJob {
  DeviceAddress to = 0;
  uint32_t units = 0;
  uint32_t dims = 1;
  std::array<uint32_t, kJobDims> extent = {1, 1, 1, 1};
  uint32_t sources = 0;
  uint32_t unused = 0;
  std::array<int64_t, kJobDims> stride = {};
};
struct MoveJobSource {
  DeviceAddress from = 0;
  std::array<int64_t, kJobDims> stride = {};
};
static_assert(sizeof(MoveJob) == 72 && sizeof(MoveJobSource) == 40);

// What a kernel gets as its one parameter: where each job begins in the table, what sums are divided by, and
// the jobs.
struct TableHead {
  std::array<uint32_t, kMostJobs> offset = {};
  double divisor = 1;
  float divisor_f32 = 1;
  uint32_t unused = 0;
};
static_assert(sizeof(TableHead) == 144);

inline constexpr int kMostSources =
    (kTableBytes - int(sizeof(TableHead)) - int(sizeof(MoveJob))) / int(sizeof(MoveJobSource));

struct MoveTable {
  alignas(16) std::array<std::byte, kTableBytes> bytes = {};
  int used_bytes = 0;
  int jobs = 0;
  uint32_t most_units = 0;  // of a job
  int unit_bytes = 0;       // of every job
};

// The tables of these moves. With `how`, addends are combined, and a unit is 16 bytes or one element. Without
// it every move has one source, and a unit is as wide as the boxes allow. A move onto itself is left out.
// Throws std::invalid_argument for more sources than a table holds.
std::vector<MoveTable> tables_of(std::span<const BoxMove> moves, const std::optional<shm::Combine>& how);

}  // namespace shardway::cuda
