// The version of these headers, and of the library that they are linked with.
#pragma once

#define SHARDWAY_VERSION "0.1.0"
#define SHARDWAY_VERSION_MAJOR 0
#define SHARDWAY_VERSION_MINOR 1
#define SHARDWAY_VERSION_PATCH 0

namespace [[gnu::visibility("default")]] shardway {

// SHARDWAY_VERSION of the library. Any thread may call.
const char* version();

}  // namespace shardway
