// The text of numbers, and of lists of numbers and names.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

namespace shardway {

inline std::string two_decimals(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// 512 B, 1.5 MiB
inline std::string in_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

template <class Item>
std::string join(const std::vector<Item>& items, const char* between) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += between;
    if constexpr (std::is_arithmetic_v<Item>) {
      text += std::to_string(items[i]);
    } else {
      text += items[i];
    }
  }
  return text;
}

// Ascending numbers as ranges: 0-3,8.
inline std::string ranges_of(const std::vector<int64_t>& ascending) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ascending[i]);
    if (last > i) text += (last == i + 1 ? "," : "-") + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace shardway
