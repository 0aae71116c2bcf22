// Torch's dtypes and devices, as ranks may name them.
#pragma once

#include "terms/kinds.h"

namespace shardway {

const wire::Kinds& kinds_of_torch();

}  // namespace shardway
