// Dtypes and devices of a torch that is not there.
#pragma once

#include "terms/kinds.h"

namespace shardway::testing {

inline constexpr wire::Kinds kTestKinds{
    .bytes_of_dtype = [](int64_t dtype) -> int64_t { return dtype >= 0 && dtype < 8 ? 4 : 0; },
    .devices = 2,
    .dtype_name = [](int64_t dtype) { return "type" + std::to_string(dtype); },
    .device_name = [](int64_t device) { return "device" + std::to_string(device); }};

}  // namespace shardway::testing
