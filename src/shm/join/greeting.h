// What a rank says first when the ranks of a job meet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace shardway::shm {

// A hash of a job's name, long enough that names in use do not collide.
using JobDigest = std::array<uint64_t, 2>;
JobDigest digest_of(std::string_view name);

struct Greeting {
  JobDigest job = {};
  int64_t rank = 0;
  int64_t size = 1;

  friend bool operator==(const Greeting&, const Greeting&) = default;
};

inline constexpr size_t kGreetingBytes = 5 * sizeof(uint64_t);
using GreetingBytes = std::array<std::byte, kGreetingBytes>;

GreetingBytes bytes_of(const Greeting& greeting);

// Returns nothing if the bytes are not a greeting of this version, or name no valid rank.
std::optional<Greeting> greeting_of(std::span<const std::byte> bytes);

}  // namespace shardway::shm
