// Torch's streams as the driver knows them.
#pragma once

#include <c10/core/Device.h>

#include "cuda/driver.h"

namespace shardway {

// The caller's current stream on a CUDA device. Throws c10::Error if this torch does not tell it.
cuda::Stream native_stream(c10::Device device);

}  // namespace shardway
