// What SHARDWAY_TUNING says, the same on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardway::shm {

// 0 or 1 if the choice is pinned; any other value leaves it to the default. Travels between ranks as bytes.
struct TuningPins {
  int8_t swap = -1;       // two ranks fill what they have emptied (swap.h)
  int8_t hand_back = -1;  // readers write the lines that they have read (lines.h)

  bool operator==(const TuningPins&) const = default;
};

// Reads a text such as "swap=1,hand_back=0". Throws std::invalid_argument that says what is allowed.
TuningPins pins_of(std::string_view text);

// Reads the variable; nothing is pinned if it is empty or not set.
TuningPins pins_of_environment();

// Returns the text that gives these pins; "nothing" if nothing is pinned.
std::string text_of(const TuningPins& pins);

}  // namespace shardway::shm
