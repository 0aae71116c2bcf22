#include "shm/join/handshake.h"

#include <algorithm>

namespace shardway::shm {

Reason reason_of(const std::string& text) {
  Reason reason{};
  std::copy_n(text.begin(), std::min(reason.size() - 1, text.size()), reason.begin());
  return reason;
}

std::string text_of(const Reason& reason) { return {reason.data(), strnlen(reason.data(), reason.size())}; }

std::string name_of(size_t rank, const Hello& hello) {
  return "rank " + std::to_string(rank) + " (process " + std::to_string(hello.pid) + ")";
}

std::optional<std::string> mistake_of(const std::vector<Hello>& hellos) {
  const bool is_one_version = std::all_of(
      hellos.begin(), hellos.end(), [](const Hello& hello) { return hello.version == kHandshakeVersion; });
  if (!is_one_version) return std::nullopt;
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].is_mistaken != 0)
      return text_of(hellos[rank].why_not) + "; so it is on rank " + std::to_string(rank);
  }
  for (size_t rank = 1; rank < hellos.size(); ++rank) {
    if (hellos[rank].pins != hellos[0].pins)
      return "SHARDWAY_TUNING pins " + text_of(hellos[0].pins) + " on rank 0 and " +
             text_of(hellos[rank].pins) + " on rank " + std::to_string(rank) + "; set it alike on every rank";
  }
  return std::nullopt;
}

std::optional<std::string> refusal_of(const std::vector<Hello>& hellos) {
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].version != kHandshakeVersion)
      return "rank " + std::to_string(rank) + " has another version";
  }
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].is_willing == 0)
      return text_of(hellos[rank].why_not) + " (rank " + std::to_string(rank) + ")";
  }
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (are_apart(hellos[rank].host, hellos[0].host))
      return name_of(rank, hellos[rank]) + " runs " + place_of(hellos[rank].host, hellos[0].host) +
             " than rank 0";
  }
  return std::nullopt;
}

std::optional<std::string> refusal_of(const std::vector<Verdict>& verdicts) {
  for (size_t rank = 0; rank < verdicts.size(); ++rank) {
    if (verdicts[rank].is_met == 0)
      return text_of(verdicts[rank].why_not) + " (rank " + std::to_string(rank) + ")";
  }
  return std::nullopt;
}

}  // namespace shardway::shm
