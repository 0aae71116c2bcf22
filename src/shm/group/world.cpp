#include "shm/group/world.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "shm/group/exchanged.h"
#include "shm/join/handshake.h"

namespace shardway::shm {
namespace {

[[noreturn]] void refuse_split(const std::string& why) { throw std::invalid_argument("split: " + why); }

// What every rank of a split says first.
struct Choice {
  int64_t color = 0;
  int64_t key = 0;
};

std::vector<std::byte> exchanged_bytes(const Whole& whole, std::span<const std::byte> mine) {
  std::vector<std::byte> all = whole.exchange(mine);
  if (all.size() != mine.size() * static_cast<size_t>(whole.size))
    throw std::logic_error("the exchange gave " + std::to_string(all.size()) + " bytes");
  return all;
}

std::vector<int64_t> members_of(const std::vector<Choice>& choices, int64_t color) {
  std::vector<int64_t> members;
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color == color) members.push_back(static_cast<int64_t>(rank));
  }
  std::stable_sort(members.begin(), members.end(), [&](int64_t a, int64_t b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  return members;
}

// The blocks of the members among those of all ranks.
std::vector<std::byte> blocks_of(const std::vector<int64_t>& members, const std::vector<std::byte>& all,
                                 int64_t ranks) {
  const size_t bytes = all.size() / static_cast<size_t>(ranks);
  std::vector<std::byte> blocks;
  for (const int64_t member : members) {
    const auto begin = all.begin() + member * static_cast<int64_t>(bytes);
    blocks.insert(blocks.end(), begin, begin + static_cast<int64_t>(bytes));
  }
  return blocks;
}

}  // namespace

JoinedGroup join_part(const Whole& whole, const std::vector<int64_t>& members, bool avoids_crowds) {
  const auto own = std::find(members.begin(), members.end(), whole.rank);
  const auto exchange = [&](std::span<const std::byte> mine) {
    return blocks_of(members, exchanged_bytes(whole, mine), whole.size);
  };
  return SharedGroup::join({.rank = own - members.begin(),
                            .size = static_cast<int64_t>(members.size()),
                            .exchange = exchange,
                            .timeout = whole.timeout,
                            .avoids_crowds = avoids_crowds});
}

Subgroup split(const Whole& whole, int64_t color, int64_t key) {
  const std::vector<Choice> choices = exchanged(whole, Choice{.color = color, .key = key});
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color < 0)
      refuse_split("color=" + std::to_string(choices[rank].color) + " is negative (rank " +
                   std::to_string(rank) + ")");
  }
  Subgroup result{.members = members_of(choices, color)};
  JoinedGroup joined;
  try {
    joined = join_part(whole, result.members);
  } catch (const std::invalid_argument& mistake) {  // of one color: the others are to hear of it
    joined.why_not = mistake.what();
  }
  const std::vector<Reason> reasons =
      exchanged(whole, reason_of(joined.why_not));  // empty where there is none
  for (size_t rank = 0; rank < reasons.size(); ++rank) {
    if (const std::string why_not = text_of(reasons[rank]); !why_not.empty())
      refuse_split("ranks of color " + std::to_string(choices[rank].color) + " share no memory: " + why_not);
  }
  result.group = std::move(joined.group);
  return result;
}

}  // namespace shardway::shm
