// The version of these headers, and of the library that they are linked with.
#pragma once

#define SHARDWAY_VERSION "0.1.0"

namespace shardway {

const char* version();

}  // namespace shardway
