// The value of an option, or an error that names the option.
#pragma once

#include <stdexcept>
#include <string>

namespace shardway::cli {

// The library's sentence without its subject: the option names it.
inline std::string without_subject(const std::string& text) {
  for (const std::string subject : {"layout: ", "mesh: ", "plan: "}) {
    if (text.starts_with(subject)) return text.substr(subject.size());
  }
  return text;
}

// Reads an option. If that fails, the error begins with the option and its text.
template <class Read>
auto value_of(const std::string& option, const std::string& text, Read read) {
  try {
    return read();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(option + " " + (text.empty() ? "''" : text) + ": " +
                                without_subject(error.what()));
  }
}

}  // namespace shardway::cli
