// The kernels as PTX, the driver's assembly text. Each text has one entry, kEntry, whose parameter is a table
// (move_table.h): a row of the grid (y) runs a job, and its threads share the units of the job.
#pragma once

#include <string>

#include "shm/kernels/reduce.h"

namespace shardway::cuda {

inline constexpr const char* kEntry = "shardway_move";

// Each thread has this many units under way.
inline constexpr int kUnitsAtOnce = 4;

// Copies units of 1, 2, 4, 8 or 16 bytes. The table has `table_bytes`.
std::string copy_text(int unit_bytes, int table_bytes);

// Whether combine_text knows the combination: sum, product, min and max of all but complex numbers.
bool has_combine_text(const shm::Combine& how);

// Combines addends in their order, with the bits of shm::reduce. A unit is one element or 16 bytes of them.
std::string combine_text(const shm::Combine& how, int unit_bytes, int table_bytes);

}  // namespace shardway::cuda
