// What ranks tell one another before they share memory, as it travels through the exchange of their group.
#pragma once

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "shm/join/pins.h"
#include "shm/memory/memory_file.h"
#include "shm/memory/process.h"
#include "shm/memory/processor.h"

namespace shardway::shm {

inline constexpr uint64_t kHandshakeVersion = 6;
inline constexpr size_t kReasonBytes = 320;
using Reason = std::array<char, kReasonBytes>;

// The first round: where to find a rank, and the secret that opens its doorway.
struct Hello {
  uint64_t version = kHandshakeVersion;
  uint64_t is_willing = 0;
  Nonce arena = {};
  uint64_t doorway = 0;
  Nonce secret = {};
  Nonce memory = {};  // the group's; rank 0's word counts
  HostMark host = {};
  int64_t pid = 0;
  cpu_set_t cores = {};
  cpu_set_t cores_at_cache = {};  // the cores that share its first core's last cache; rank 0's word counts
  int64_t quota = -1;
  Processor processor = Processor::unknown;  // rank 0's word counts
  TuningPins pins = {};
  TuningPins measured = {};  // see tune.h; rank 0's word counts
  uint8_t is_mistaken = 0;   // its user made a mistake, which why_not describes: no rank goes on
  Reason why_not = {};
};

// The second round: whether the rank has met all others.
struct Verdict {
  uint64_t is_met = 0;
  int64_t board = 0;  // its offset in the arena
  Reason why_not = {};
};

// Every rank's word of a round, by rank. Throws std::logic_error if the exchange gave another length.
template <class Word>
std::vector<Word> words_of(std::span<const std::byte> all, int64_t ranks) {
  std::vector<Word> words(static_cast<size_t>(ranks));
  if (all.size() != words.size() * sizeof(Word))
    throw std::logic_error("the exchange gave " + std::to_string(all.size()) + " bytes, not " +
                           std::to_string(words.size() * sizeof(Word)) +
                           ": a rank runs another version of shardway, or the exchange is wrong");
  std::memcpy(words.data(), all.data(), all.size());
  return words;
}

// reason_of keeps as much of the text as fits; text_of returns what a rank's reason says.
Reason reason_of(const std::string& text);
std::string text_of(const Reason& reason);

// A rank as messages name it: its number and its process.
std::string name_of(size_t rank, const Hello& hello);

// Returns the users' mistake, for which every rank throws, or nothing. The mistake is a SHARDWAY_TUNING that
// is invalid or differs between ranks.
std::optional<std::string> mistake_of(const std::vector<Hello>& hellos);

// Why these ranks have no group, or nothing.
std::optional<std::string> refusal_of(const std::vector<Hello>& hellos);
std::optional<std::string> refusal_of(const std::vector<Verdict>& verdicts);

}  // namespace shardway::shm
