#include "shardway/version.h"

namespace shardway {

const char* version() { return SHARDWAY_VERSION; }

}  // namespace shardway
