// Bytes as text (RFC 4648), for values that travel in JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardway::link {

std::string base64_of(const std::vector<uint8_t>& bytes);

// Throws NotOurs if the text is not base64.
std::vector<uint8_t> bytes_of_base64(std::string_view text);

}  // namespace shardway::link
