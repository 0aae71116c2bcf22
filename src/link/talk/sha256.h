// SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardway::link {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view message);
Digest hmac_sha256(std::string_view key, std::string_view message);

std::string hex_of(const uint8_t* bytes, size_t count);

}  // namespace shardway::link
