// What a rank says first where the ranks of a job meet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace shardway::shm {

// The name of a job in few bytes; no two names that anybody gives have the same.
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

// Nothing where the bytes are no greeting of this version, or name no rank.
std::optional<Greeting> greeting_of(std::span<const std::byte> bytes);

}  // namespace shardway::shm
