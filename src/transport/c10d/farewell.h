// What a rank says last to the others of its group, as bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace shardway {

struct Farewell {
  enum class Kind : uint8_t {
    left = 1,     // it has released the group
    gave_up = 2,  // a call of it failed, so the group is over
  };

  Kind kind = Kind::left;
  int64_t cause = 0;     // the rank that could not be reached, or the speaker if its own call failed
  std::string why = {};  // what became of that rank
};

// All farewells have one length. The first byte is never zero.
inline constexpr size_t kFarewellBytes = 512;
using FarewellBytes = std::array<uint8_t, kFarewellBytes>;

// A text that is too long is cut.
FarewellBytes bytes_of(const Farewell& farewell);

// Returns none for bytes that are no farewell of a group of so many ranks.
std::optional<Farewell> farewell_in(std::span<const uint8_t> bytes, int64_t ranks);

}  // namespace shardway
