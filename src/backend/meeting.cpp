#include "backend/meeting.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <vector>

namespace shardway::backend {
namespace {

// A store outlives the groups that are made with it, and names of groups come again: the ranks count their
// arrivals, and so know the how many-eth group of this name it is.
class Exchanger {
 public:
  Exchanger(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds timeout)
      : store_(store),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        prefix_("shardway/" + std::to_string((store.add("shardway/arrivals", 1) - 1) / size) + "/") {}

  std::vector<std::byte> operator()(std::span<const std::byte> mine) {
    const std::string round = prefix_ + std::to_string(rounds_++) + "/";
    const auto* begin = reinterpret_cast<const uint8_t*>(mine.data());
    store_.set(round + std::to_string(rank_), std::vector<uint8_t>(begin, begin + mine.size()));
    std::vector<std::byte> all;
    for (int64_t rank = 0; rank < size_; ++rank) {
      const std::vector<uint8_t> theirs = get(round, rank);
      const auto* bytes = reinterpret_cast<const std::byte*>(theirs.data());
      all.insert(all.end(), bytes, bytes + theirs.size());
    }
    return all;
  }

  // Once all have what they came for. A store that cannot forget keeps a few hundred bytes.
  void clean_up() {
    try {
      for (int64_t round = 0; round < rounds_; ++round)
        store_.deleteKey(prefix_ + std::to_string(round) + "/" + std::to_string(rank_));
    } catch (const c10::Error&) {
      rounds_ = 0;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // The store's own timeout is that of the world.
  std::vector<uint8_t> get(const std::string& round, int64_t rank) {
    const std::string key = round + std::to_string(rank);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    try {
      store_.wait({key}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const c10::Error&) {
      TORCH_CHECK_WITH(DistBackendError, Clock::now() < deadline_, "shardway: rank ", rank,
                       " did not come within the group's timeout of ", timeout_.count(), " ms (rank ", rank_,
                       ")");
      throw;
    }
    return store_.get(key);
  }

  c10d::Store& store_;
  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  std::string prefix_;
  int64_t rounds_ = 0;
};

}  // namespace

std::shared_ptr<shm::Group> meet(c10d::Store& store, int64_t rank, int64_t size,
                                 std::chrono::milliseconds timeout) {
  Exchanger exchanger(store, rank, size, timeout);
  shm::Joined joined = shm::Group::join({.rank = rank,
                                         .size = size,
                                         .exchange = [&](auto mine) { return exchanger(mine); },
                                         .timeout = timeout});
  TORCH_CHECK_WITH(DistBackendError, joined.group != nullptr, "shardway: the ranks share no memory, ",
                   joined.why_not,
                   ": use init_process_group(\"gloo\"), on which shardway's own calls work on any hosts");
  std::vector<std::byte> rows(static_cast<size_t>(size));
  joined.group->gather_notes({}, rows.data(), 1);
  exchanger.clean_up();
  return std::move(joined.group);
}

}  // namespace shardway::backend
