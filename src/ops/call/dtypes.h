// torch's dtypes as the planner's.
#pragma once

#include <c10/core/ScalarType.h>

#include "shardway/layout.h"
#include "terms/kinds.h"

namespace shardway {

// Throws BadArgument for a dtype that is not moved.
DType dtype_of(at::ScalarType dtype);

at::ScalarType scalar_type_of(DType dtype);

// What ranks may say of dtypes and devices.
const wire::Kinds& kinds_of_torch();

}  // namespace shardway
