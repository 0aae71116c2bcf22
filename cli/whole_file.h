// Files that are written whole or not at all.
#pragma once

#include <string>

namespace shardway::cli {

// Through a temporary file beside it, renamed when complete; a device or a pipe is written to as it is.
// Throws std::invalid_argument naming the file and what is in the way.
void write_whole(const std::string& path, const std::string& text);

}  // namespace shardway::cli
