#include "shm/join/greeting.h"

#include <cstring>

namespace shardway::shm {
namespace {

constexpr uint64_t kWord = 0x7368617264776132;  // "shardwa2"
constexpr int64_t kMostRanks = 1 << 20;

struct Written {
  uint64_t word = kWord;
  JobDigest job = {};
  int64_t rank = 0;
  int64_t size = 0;
};
static_assert(sizeof(Written) == kGreetingBytes);

uint64_t hash_of(std::string_view text, uint64_t start) {
  for (const char letter : text) start = (start ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return start;
}

}  // namespace

JobDigest digest_of(std::string_view name) {
  return {hash_of(name, 0xcbf29ce484222325), hash_of(name, 0x9e3779b97f4a7c15)};
}

GreetingBytes bytes_of(const Greeting& greeting) {
  const Written written{.job = greeting.job, .rank = greeting.rank, .size = greeting.size};
  GreetingBytes bytes;
  std::memcpy(bytes.data(), &written, sizeof(written));
  return bytes;
}

std::optional<Greeting> greeting_of(std::span<const std::byte> bytes) {
  Written written;
  if (bytes.size() != sizeof(written)) return std::nullopt;
  std::memcpy(&written, bytes.data(), sizeof(written));
  const bool is_rank =
      written.size >= 1 && written.size <= kMostRanks && written.rank >= 0 && written.rank < written.size;
  if (written.word != kWord || !is_rank) return std::nullopt;
  return Greeting{.job = written.job, .rank = written.rank, .size = written.size};
}

}  // namespace shardway::shm
