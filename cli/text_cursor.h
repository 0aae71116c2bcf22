// A place in a text that is being read. Errors name a column, counted from 1.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shardway::cli {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool is_at_end() const { return at_ == text_.size(); }
  char next() const { return is_at_end() ? '\0' : text_[at_]; }
  size_t column() const { return at_ + 1; }

  bool take(char wanted) {
    if (next() != wanted || is_at_end()) return false;
    ++at_;
    return true;
  }

  void need(char wanted, const std::string& why) {
    if (!take(wanted)) refuse(std::string("needs '") + wanted + "' " + why);
  }

  int64_t number(const std::string& of_what) {
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) refuse("is too large for " + of_what);
    if (error != std::errc() || *begin == '-') refuse("must be " + of_what);
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  // The letters, digits and underscores that come next.
  std::string word() {
    const size_t begin = at_;
    while (std::isalnum(static_cast<unsigned char>(next())) != 0 || next() == '_') ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string letters() {
    const size_t begin = at_;
    while (std::isalpha(static_cast<unsigned char>(next())) != 0) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }

  void skip_spaces() {
    while (take(' ')) {
    }
  }

  std::string_view rest() const { return text_.substr(at_); }
  void skip(size_t characters) { at_ += characters; }

  [[noreturn]] void refuse(const std::string& why) const { refuse_at(column(), why); }

  // "column 4: 'X' must be …", or "column 4: the end must be …".
  [[noreturn]] void refuse_at(size_t column, const std::string& why) const {
    std::string_view shown = text_.substr(column - 1);
    shown = shown.substr(0, std::min<size_t>(shown.find(','), kMostShown));
    if (shown.empty() && column <= text_.size()) shown = text_.substr(column - 1, 1);
    throw std::invalid_argument("column " + std::to_string(column) + ": " +
                                (shown.empty() ? "the end" : "'" + std::string(shown) + "'") + " " + why);
  }

 private:
  static constexpr size_t kMostShown = 24;

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace shardway::cli
