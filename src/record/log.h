// What shardway prints to standard error, by the variables SHARDWAY_LOG and SHARDWAY_QUIET.
#pragma once

#include <cstdint>
#include <string>

namespace shardway::record {

// trouble: what a user must hear of (the default). info: groups that are made, and calls that fail. debug:
// every call.
enum class LogLevel : uint8_t { nothing, trouble, info, debug };

// The level of this process. Read once, and again in a child of fork.
LogLevel log_level();

// Whether SHARDWAY_QUIET says so at this moment.
bool is_quiet();

// The level that these values of SHARDWAY_LOG and SHARDWAY_QUIET mean; null is not set. An unknown word of
// SHARDWAY_LOG is std::invalid_argument.
LogLevel level_of(const char* log, const char* quiet);

// Prints the lines, each behind "shardway:". One write, so that those of several ranks do not mix.
void print_lines(const std::string& text);

}  // namespace shardway::record
