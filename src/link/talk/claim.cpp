#include "link/talk/claim.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>

namespace shardway::link {
namespace {

constexpr int64_t kLongestName = 64;  // characters
constexpr int64_t kLongestLine = 512;
constexpr size_t kWordsInClaim = 5;
constexpr int64_t kMostRanks = int64_t{1} << 20;
constexpr const char* kJobWords[] = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT"};

// Words of the launcher, with slashes between them and none at the ends.
std::string job_here() {
  std::string text;
  for (const char* word : kJobWords) {
    const char* value = std::getenv(word);
    text += (word == kJobWords[0] ? "" : "/") + std::string(value == nullptr ? "" : value);
  }
  const size_t first = text.find_first_not_of('/');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of('/') - first + 1);
}

std::string process_here() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return "process " + std::to_string(getpid()) + " on " + host.data();
}

// Whether a text is on one line, without control characters, and no longer than this many characters.
bool is_line(const std::string& text, int64_t longest) {
  const bool has_controls =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  const auto characters =
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; });
  return !has_controls && characters <= longest;
}

Claim checked(const Claim& claim) {
  if (claim.role.empty() || !is_line(claim.role, kLongestName)) {
    throw std::invalid_argument("role='" + claim.role + "' is not a name of 1 to " +
                                std::to_string(kLongestName) + " characters");
  }
  if (claim.rank < 0 || claim.rank >= claim.size || claim.size > kMostRanks) {
    throw std::invalid_argument("rank=" + std::to_string(claim.rank) + " is not a rank of size=" +
                                std::to_string(claim.size) + " (role " + claim.role + ")");
  }
  return claim;
}

}  // namespace

Claim Claim::own(const std::string& role, int64_t rank, int64_t size) {
  return checked({.role = role, .rank = rank, .size = size, .process = process_here(), .job = job_here()});
}

Claim Claim::read(const Json& said) {
  if (!said.is_object() || said.size() != kWordsInClaim) throw NotOurs("no claim");
  if (!is_line(text_in(said, "process"), kLongestLine) || !is_line(text_in(said, "job"), kLongestLine))
    throw NotOurs("a claim without words");
  try {
    return checked({.role = text_in(said, "role"),
                    .rank = integer_in(said, "rank"),
                    .size = integer_in(said, "size"),
                    .process = text_in(said, "process"),
                    .job = text_in(said, "job")});
  } catch (const std::invalid_argument& error) {
    throw NotOurs(error.what());
  }
}

Json Claim::said() const {
  return {{"role", role}, {"rank", rank}, {"size", size}, {"process", process}, {"job", job}};
}

std::string to_string(const Claim& claim) {
  return "role " + claim.role + " rank " + std::to_string(claim.rank);
}

}  // namespace shardway::link
