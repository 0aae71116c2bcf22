// Numbers, and lists of them and of names: their product, their text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace shardway {

inline int64_t product(const std::vector<int64_t>& numbers) {
  int64_t result = 1;
  for (const int64_t number : numbers) result *= number;
  return result;
}

inline std::string two_decimals(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", value);
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

}  // namespace shardway
