#include "link/talk/base64.h"

#include "link/talk/wire.h"

namespace shardway::link {
namespace {

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint32_t value_of_letter(char letter) {
  const size_t found = kLetters.find(letter);
  if (found == std::string_view::npos) throw NotOurs("a value is not base64");
  return static_cast<uint32_t>(found);
}

// How many letters of the last four stand for no byte.
size_t fill_of(std::string_view text) {
  if (text.ends_with("==")) return 2;
  return text.ends_with('=') ? 1 : 0;
}

}  // namespace

std::string base64_of(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t here = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < here ? bytes[i + k] : 0U);
    for (size_t k = 0; k < 4; ++k) text += k <= here ? kLetters[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::vector<uint8_t> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) throw NotOurs("a value is not base64");
  const size_t fill = fill_of(text);
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < text.size(); i += 4) {
    const size_t letters = i + 4 == text.size() ? 4 - fill : 4;
    uint32_t three = 0;
    for (size_t k = 0; k < 4; ++k) three = three << 6 | (k < letters ? value_of_letter(text[i + k]) : 0U);
    for (size_t k = 0; k + 1 < letters; ++k) bytes.push_back(three >> (16 - 8 * k) & 0xff);
  }
  return bytes;
}

}  // namespace shardway::link
