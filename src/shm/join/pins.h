// Choices of a group's tuning that are made for it: by SHARDWAY_TUNING, the same on every rank, or measured.
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

constexpr bool is_pinned(int8_t choice) { return choice == 0 || choice == 1; }

// Reads a text such as "swap=1,hand_back=0". Throws std::invalid_argument that says what is allowed.
TuningPins pins_of(std::string_view text);

// Reads the variable; nothing is pinned if it is empty or not set.
TuningPins pins_of_environment();

// Returns the text that gives these pins; "nothing" if nothing is pinned.
std::string text_of(const TuningPins& pins);

}  // namespace shardway::shm
