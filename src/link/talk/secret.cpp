#include "link/talk/secret.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "link/talk/sha256.h"

namespace shardway::link {
namespace {

constexpr const char* kSecretWord = "SHARDWAY_LINK_SECRET";

}  // namespace

std::string read_secret(const std::optional<std::string>& given) {
  if (given) return *given;
  const char* found = std::getenv(kSecretWord);
  return found == nullptr ? "" : found;
}

std::string fresh_nonce() {
  std::array<uint8_t, 16> bytes{};
  ssize_t filled = 0;
  do {
    filled = getrandom(bytes.data(), bytes.size(), 0);
  } while (filled < 0 && errno == EINTR);
  if (filled != static_cast<ssize_t>(bytes.size())) throw std::system_error(errno, std::generic_category());
  return hex_of(bytes.data(), bytes.size());
}

std::string proof(const std::string& secret, const std::string& side, const Json& said) {
  Json all = Json::array({side});
  for (const Json& one : said) all.push_back(one);
  const Digest digest = hmac_sha256(secret, spaced_text(all));
  return hex_of(digest.data(), digest.size());
}

bool is_proof(const Json& shown, const std::string& expected) {
  if (!shown.is_string()) return false;
  const auto text = shown.get<std::string>();
  if (text.size() != expected.size()) return false;
  int differing = 0;
  for (size_t i = 0; i < text.size(); ++i) differing |= text[i] ^ expected[i];
  return differing == 0;
}

}  // namespace shardway::link
