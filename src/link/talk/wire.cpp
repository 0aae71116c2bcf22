#include "link/talk/wire.h"

#include "link/talk/parsed.h"

namespace shardway::link {
namespace {

constexpr size_t kLengthBytes = 4;

std::string length_text(size_t length) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(length >> shift & 0xff);
  return text;
}

size_t length_in(std::string_view bytes) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
  return length;
}

// Without spaces, and in ASCII alone. A host's name that is not UTF-8 does not end the program.
std::string compact_text(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

}  // namespace

std::string packed(const Json& message) {
  const std::string body = compact_text(message);
  if (body.size() > kMostInMessage) {
    throw std::invalid_argument("link: a message of " + std::to_string(body.size()) +
                                " bytes is longer than " + std::to_string(kMostInMessage));
  }
  return length_text(body.size()) + body;
}

std::string spaced_text(const Json& value) {
  std::vector<std::string> parts;
  if (value.is_array()) {
    for (const Json& item : value) parts.push_back(spaced_text(item));
    return "[" + joined(parts) + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      parts.push_back(compact_text(key) + ": " + spaced_text(item));
    return "{" + joined(parts) + "}";
  }
  return compact_text(value);
}

const Json& member_of(const Json& message, const std::string& key) {
  const auto found = message.find(key);
  if (found == message.end()) throw NotOurs("a message has no " + key);
  return *found;
}

std::string text_in(const Json& message, const std::string& key) {
  const Json& value = member_of(message, key);
  if (!value.is_string()) throw NotOurs(key + " in a message is not a text");
  return value.get<std::string>();
}

int64_t integer_in(const Json& message, const std::string& key) {
  const Json& value = member_of(message, key);
  if (!value.is_number_integer()) throw NotOurs(key + " in a message is not a whole number");
  return value.get<int64_t>();
}

std::string text_or(const Json& message, const std::string& key, const std::string& otherwise) {
  return message.contains(key) && message[key].is_string() ? message[key].get<std::string>() : otherwise;
}

bool truth_or(const Json& message, const std::string& key, bool otherwise) {
  return message.contains(key) && message[key].is_boolean() ? message[key].get<bool>() : otherwise;
}

std::optional<Json> Inbox::next() {
  if (bytes_.size() < kLengthBytes) return std::nullopt;
  const size_t length = length_in(bytes_);
  if (length > most_) {
    throw NotOurs("a message of " + std::to_string(length) + " bytes where at most " + std::to_string(most_) +
                  " are allowed");
  }
  const size_t end = kLengthBytes + length;
  if (bytes_.size() < end) return std::nullopt;
  const std::string body = bytes_.substr(kLengthBytes, length);
  bytes_.erase(0, end);
  Json message = parsed(body);
  if (!message.is_object()) throw NotOurs("a message is not a JSON object");
  return message;
}

}  // namespace shardway::link
