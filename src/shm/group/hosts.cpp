#include "shm/group/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "shm/group/exchanged.h"
#include "shm/join/handshake.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

// How a rank came out of the making of its host's group.
struct Result {
  uint8_t has_group = 0;
  uint8_t is_mistaken = 0;  // see Hello
  Reason why_not = {};
  std::array<char, 64> host_name = {};  // with a zero behind it, cut if it is longer
};

// The first rank of each rank's host. A rank that does not know its host is alone.
std::vector<int64_t> labels_of(const std::vector<HostMark>& marks) {
  std::vector<int64_t> labels;
  for (size_t rank = 0; rank < marks.size(); ++rank) {
    const bool is_known = marks[rank] != HostMark{};
    const auto first = is_known ? std::find(marks.begin(), marks.end(), marks[rank]) - marks.begin()
                                : static_cast<int64_t>(rank);
    labels.push_back(first);
  }
  return labels;
}

std::vector<int64_t> ranks_with(const std::vector<int64_t>& labels, int64_t label) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < labels.size(); ++rank) {
    if (labels[rank] == label) ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

}  // namespace

HostGroups join_hosts(const Whole& whole) {
  const std::vector<HostMark> marks = exchanged(whole, host_mark());
  HostGroups groups{.labels = labels_of(marks)};
  const int64_t own = groups.labels[static_cast<size_t>(whole.rank)];
  Result result;
  (void)gethostname(result.host_name.data(), result.host_name.size() - 1);
  try {
    JoinedGroup joined = join_part(whole, ranks_with(groups.labels, own), /*avoids_crowds=*/true);
    groups.own = std::move(joined.group);
    result.has_group = groups.own != nullptr ? 1 : 0;
    result.why_not = reason_of(joined.why_not);
  } catch (const std::invalid_argument& mistake) {  // of one host: the others are to hear of it
    result.is_mistaken = 1;
    result.why_not = reason_of(mistake.what());
  }
  const std::vector<Result> results = exchanged(whole, result);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const std::string why_not = text_of(results[rank].why_not);
    if (results[rank].is_mistaken != 0) throw std::invalid_argument(why_not);
    const auto& name = results[rank].host_name;
    groups.names.emplace_back(name.data(), strnlen(name.data(), name.size()));
    if (results[rank].has_group != 0) continue;
    groups.labels[rank] = static_cast<int64_t>(rank);
    if (groups.why_apart.empty()) groups.why_apart = why_not;
  }
  return groups;
}

}  // namespace shardway::shm
