#include "backend/identity.h"

#include <set>
#include <sstream>
#include <string_view>

namespace shardway::backend {
namespace {

bool is_as_in_the_world(const std::vector<uint64_t>& global_ranks) {
  for (size_t rank = 0; rank < global_ranks.size(); ++rank) {
    if (global_ranks[rank] != rank) return false;
  }
  return true;
}

// The numbers that follow the word in the text.
std::set<size_t> ranks_in(std::string_view text) {
  constexpr std::string_view kWord = "rank ";
  std::set<size_t> ranks;
  for (size_t at = text.find(kWord); at != text.npos; at = text.find(kWord, at + 1)) {
    std::istringstream number(std::string(text.substr(at + kWord.size(), 9)));
    size_t rank = 0;
    if (number >> rank) ranks.insert(rank);
  }
  return ranks;
}

}  // namespace

Identity::Identity(std::string name, const std::vector<uint64_t>& global_ranks) : name_(std::move(name)) {
  if (!is_as_in_the_world(global_ranks)) global_ranks_ = global_ranks;
}

std::string Identity::explained(const std::string& text) const {
  std::ostringstream explained;
  explained << text;
  bool has_any = false;
  for (const size_t rank : ranks_in(text)) {
    if (rank >= global_ranks_.size()) continue;
    explained << (has_any ? ", " : " (numbers of the group: ") << "rank " << rank << " is global rank "
              << global_ranks_[rank];
    has_any = true;
  }
  explained << (has_any ? ")" : "");
  return explained.str();
}

}  // namespace shardway::backend
