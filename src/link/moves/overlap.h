// Which destinations share memory. Views of one matrix may interleave without sharing an element.
#pragma once

#include <string>
#include <vector>

#include "link/moves/declaration.h"

namespace shardway::link {

// A line for each destination that shares an element with an earlier one, by name, or with itself.
std::vector<std::string> overlaps(const TensorsByName& tensors);

}  // namespace shardway::link
