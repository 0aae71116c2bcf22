// Layouts as JSON, and back: shape, dtype, the mesh's shape and ranks, placements, the order of shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/text/json.h"
#include "shardway/layout.h"

namespace shardway::link {

// As torch writes it: float32.
std::string torch_name(DType dtype);

// Nothing if there is no such dtype; the second throws std::invalid_argument then.
std::optional<DType> dtype_if_named(const std::string& torch_name);
DType dtype_named(const std::string& torch_name);

Json entry_of(const Layout& layout);

// With the role's ranks numbered from `first_rank`. Throws std::invalid_argument if the entry is no layout.
Layout layout_of(const Json& entry, int64_t first_rank, DType dtype);

}  // namespace shardway::link
