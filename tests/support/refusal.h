// What a call that must be refused says.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace shardway::testing {

// The message of the std::invalid_argument that `call` throws; empty when it throws nothing.
template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// Whether the refusal of `call` has all of these words.
template <class Call, class... Words>
::testing::AssertionResult refuses_with(const Call& call, const Words&... words) {
  const std::string message = refusal_of(call);
  if (message.empty()) return ::testing::AssertionFailure() << "it was not refused";
  std::string missing;
  const auto look_for = [&](const std::string& word) {
    if (message.find(word) == std::string::npos) missing += " '" + word + "'";
  };
  (look_for(words), ...);
  if (missing.empty()) return ::testing::AssertionSuccess() << message;
  return ::testing::AssertionFailure() << "not in \"" << message << "\":" << missing;
}

}  // namespace shardway::testing
