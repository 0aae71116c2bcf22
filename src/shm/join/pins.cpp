#include "shm/join/pins.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

namespace shardway::shm {
namespace {

struct Word {
  std::string_view name;
  int8_t TuningPins::*value;
};

constexpr std::array kWords = {Word{.name = "swap", .value = &TuningPins::swap},
                               Word{.name = "hand_back", .value = &TuningPins::hand_back}};

class PinReader {
 public:
  explicit PinReader(std::string_view text) : text_(text) {}

  TuningPins read() {
    for (size_t begin = 0; begin <= text_.size();) {
      const size_t end = std::min(text_.find(',', begin), text_.size());
      take(text_.substr(begin, end - begin));
      begin = end + 1;
    }
    return pins_;
  }

 private:
  void take(std::string_view word) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    for (const Word& known : kWords) {
      if (known.name != name) continue;
      if (value != "0" && value != "1") refuse(quoted(word) + " does not end in =0 or =1");
      if (is_pinned(pins_.*known.value)) refuse(std::string(name) + " is there twice");
      pins_.*known.value = value == "1" ? 1 : 0;
      return;
    }
    refuse(quoted(word) + " is not known");
  }

  static std::string quoted(std::string_view word) { return '"' + std::string(word) + '"'; }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument("SHARDWAY_TUNING=" + std::string(text_) + ": " + why +
                                "; allowed are swap=0 or swap=1 and hand_back=0 or hand_back=1, with a comma"
                                " between two");
  }

  std::string_view text_;
  TuningPins pins_ = {};
};

}  // namespace

TuningPins pins_of(std::string_view text) { return text.empty() ? TuningPins{} : PinReader(text).read(); }

TuningPins pins_of_environment() {
  const char* text = std::getenv("SHARDWAY_TUNING");
  return pins_of(text != nullptr ? text : "");
}

std::string text_of(const TuningPins& pins) {
  std::string text;
  for (const Word& known : kWords) {
    if (!is_pinned(pins.*known.value)) continue;
    text += (text.empty() ? "" : ",") + std::string(known.name) + "=" + std::to_string(pins.*known.value);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace shardway::shm
