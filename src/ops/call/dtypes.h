// torch's dtypes as the planner's.
#pragma once

#include <c10/core/ScalarType.h>

#include "shardway/layout.h"

namespace shardway {

// Throws BadArgument for a dtype that cannot be moved.
DType dtype_of(at::ScalarType dtype);

at::ScalarType scalar_type_of(DType dtype);

}  // namespace shardway
