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

std::optional<std::string> refusal_of(const std::vector<Hello>& hellos) {
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].version != kHandshakeVersion)
      return "rank " + std::to_string(rank) + " has another version";
  }
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].is_willing == 0)
      return text_of(hellos[rank].why_not) + " (rank " + std::to_string(rank) + ")";
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
