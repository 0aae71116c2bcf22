// Messages on a socket: a length of four bytes, then JSON. The form is that of python/shardway/_link/wire.py,
// byte for byte, with the same version.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "plan/text/json.h"

namespace shardway::link {

inline constexpr int64_t kLinkVersion = 2;
inline constexpr size_t kMostFromStrangers = size_t{1} << 12;  // bytes
inline constexpr size_t kMostInMessage = size_t{1} << 28;

// What came is not a message of a link.
class NotOurs : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws std::invalid_argument if the message is too long.
std::string packed(const Json& message);

// As Python's json.dumps writes it by default. Both sides of a greeting prove what was said in this form.
std::string spaced_text(const Json& value);

// What a member of a message says. Each throws NotOurs if it is absent or of another kind.
std::string text_in(const Json& message, const std::string& key);
int64_t integer_in(const Json& message, const std::string& key);
const Json& member_of(const Json& message, const std::string& key);

// The same, or what to take instead.
std::string text_or(const Json& message, const std::string& key, const std::string& otherwise);
bool truth_or(const Json& message, const std::string& key, bool otherwise);

// Bytes as they come in, messages as they are complete.
class Inbox {
 public:
  void add(std::string_view some) { bytes_ += some; }
  bool is_empty() const { return bytes_.empty(); }
  void trust() { most_ = kMostInMessage; }  // from now on messages may be long

  // Returns the next message if it is complete. Throws NotOurs if it is none.
  std::optional<Json> next();

 private:
  size_t most_ = kMostFromStrangers;
  std::string bytes_;
};

}  // namespace shardway::link
