// What ranks may say of torch's dtypes and devices.
#pragma once

#include "terms/kinds.h"

namespace shardway {

const wire::Kinds& kinds_of_torch();

}  // namespace shardway
