// Files that are written whole or not at all.
#pragma once

#include <string>

namespace shardway::cli {

// Writes a temporary file beside it and renames that when complete. Writes to a device or a pipe directly.
// Throws std::invalid_argument naming the file and what is in the way.
void write_whole(const std::string& path, const std::string& text);

// Throws the same error at once if the file could not be written. Leaves nothing behind.
void refuse_unwritable(const std::string& path);

}  // namespace shardway::cli
