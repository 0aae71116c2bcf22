#include "backend/meeting.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "shm/memory/arena.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr const char* kCall = "shardway/call";
constexpr const char* kNobodyCalls = "-";
constexpr auto kLookEvery = 500ms;  // how often a rank looks for another call

std::vector<uint8_t> value_of(const std::string& text) { return {text.begin(), text.end()}; }

// A store outlives the groups that are made with it, and the attempts that failed because a rank did not come
// or died. Names of groups are used again, and ranks come back. So every attempt of a rank has a number of
// its own. Rank 0 calls with its number. The others answer that call with theirs, until there is another
// call. When all have answered, rank 0 writes the list of their numbers. A rank that finds its own number in
// the list has met the others. What earlier attempts left behind has other numbers.
//
//   shardway/call = 7;  shardway/7/here/1 = 4, shardway/7/here/2 = 9;  shardway/7/met = "7 4 9"
class StoreMeeting {
 public:
  StoreMeeting(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds timeout)
      : store_(store),
        rank_(rank),
        size_(size),
        timeout_(timeout),
        deadline_(SteadyClock::now() + timeout),
        number_(std::to_string(shm::random_nonce()[0])) {}

  void begin() {
    if (rank_ == 0) {
      call();
    } else {
      while (!is_in_answered_call()) {
      }
    }
  }

  // Once it has begun: the same on every rank, and another for every meeting.
  const std::string& name() const { return prefix_; }

  // Collective. Returns every rank's block, one after another.
  std::vector<std::byte> exchange(std::span<const std::byte> mine) {
    const std::string round = prefix_ + std::to_string(rounds_++) + "/";
    const auto* begin = reinterpret_cast<const uint8_t*>(mine.data());
    store_.set(round + std::to_string(rank_), std::vector<uint8_t>(begin, begin + mine.size()));
    std::vector<std::byte> all;
    for (int64_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        all.insert(all.end(), mine.begin(), mine.end());
        continue;
      }
      const std::string key = round + std::to_string(rank);
      await(key, rank);
      const std::vector<uint8_t> theirs = store_.get(key);
      const auto* bytes = reinterpret_cast<const std::byte*>(theirs.data());
      all.insert(all.end(), bytes, bytes + theirs.size());
    }
    return all;
  }

  // Ends the call: from now on nobody answers it. Must run before any rank may begin another meeting.
  void end_call() {
    if (rank_ == 0) store_.set(kCall, value_of(kNobodyCalls));
  }

  // Deletes this rank's keys, once all ranks have read them; those of the last round may still be read by
  // others, and are kept if asked. A store that cannot delete keys keeps a few hundred bytes.
  void clean_up(bool keeps_last) {
    try {
      for (int64_t round = 0; round < rounds_ - (keeps_last ? 1 : 0); ++round)
        store_.deleteKey(prefix_ + std::to_string(round) + "/" + std::to_string(rank_));
      store_.deleteKey(rank_ == 0 ? prefix_ + "met" : here(rank_));
    } catch (const std::exception&) {
      rounds_ = 0;
    }
  }

 private:
  std::string here(int64_t rank) const { return prefix_ + "here/" + std::to_string(rank); }

  void call() {
    prefix_ = "shardway/" + number_ + "/";
    store_.set(kCall, value_of(number_));
    for (int64_t rank = 1; rank < size_; ++rank) await(here(rank), rank);
    std::string numbers = number_;
    for (int64_t rank = 1; rank < size_; ++rank) numbers += " " + text_at(here(rank));
    store_.set(prefix_ + "met", value_of(numbers));
  }

  // Answers rank 0's call, if there is one, and waits until all ranks have answered it or there is another
  // call. Returns whether this rank has met the others.
  bool is_in_answered_call() {
    await(kCall, 0);
    const std::string call = text_at(kCall);
    const bool is_called = call != kNobodyCalls;
    if (is_called) {
      prefix_ = "shardway/" + call + "/";
      store_.set(here(rank_), value_of(number_));
    }
    for (auto pause = 1ms;; pause = std::min(2 * pause, 100ms)) {
      const bool has_met = is_called && is_there(prefix_ + "met", SteadyClock::now() + kLookEvery);
      if (has_met && is_in(text_at(prefix_ + "met"))) return true;
      if (SteadyClock::now() > deadline_) check_in_time(missing_rank());
      if (text_at(kCall) != call) return false;
      if (has_met || !is_called) std::this_thread::sleep_for(pause);
    }
  }

  // Whether the list has this attempt's number. If not, an earlier attempt of this rank answered the call.
  bool is_in(const std::string& list) const {
    std::istringstream numbers(list);
    std::string number;
    for (int64_t rank = 0; rank <= rank_; ++rank) numbers >> number;
    return number == number_;
  }

  // The first rank that has not answered the call that this rank has answered; rank 0 if there is none.
  int64_t missing_rank() {
    for (int64_t rank = 1; rank < size_ && !prefix_.empty(); ++rank) {
      if (!store_.check({here(rank)})) return rank;
    }
    return 0;
  }

  std::string text_at(const std::string& key) {
    const std::vector<uint8_t> bytes = store_.get(key);
    return {bytes.begin(), bytes.end()};
  }

  void check_in_time(int64_t missing) const {
    TORCH_CHECK_WITH(DistBackendError, SteadyClock::now() < deadline_, "shardway: rank ", missing,
                     " did not answer within the group's timeout of ", timeout_.count(), " ms (rank ", rank_,
                     ")");
  }

  void await(const std::string& key, int64_t rank) {
    if (!is_there(key, deadline_)) check_in_time(rank);
  }

  // Waits for the key until `until`, or until this rank's time is over; returns whether it is there. The
  // store's own timeout is the world's and is not used. A store that is written in Python throws exceptions
  // of its own.
  bool is_there(const std::string& key, SteadyClock::time_point until) {
    until = std::min(until, deadline_);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now());
    try {
      store_.wait({key}, std::max(left, 1ms));
      return true;
    } catch (const std::exception&) {
      if (SteadyClock::now() < until) throw;
      return false;
    }
  }

  c10d::Store& store_;
  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds timeout_;
  SteadyClock::time_point deadline_;
  std::string number_;
  std::string prefix_ = {};  // of the call that this rank answers or makes; empty before
  int64_t rounds_ = 0;
};

Met join(StoreMeeting& meeting, int64_t rank, int64_t size, std::chrono::milliseconds timeout) {
  meeting.begin();
  const auto exchange = [&](std::span<const std::byte> mine) { return meeting.exchange(mine); };
  shm::JoinedGroup joined =
      shm::SharedGroup::join({.rank = rank, .size = size, .exchange = exchange, .timeout = timeout});
  Met met{.group = std::move(joined.group), .name = meeting.name()};
  if (joined.spans_hosts) {
    met.hosts = shm::join_hosts({.rank = rank, .size = size, .exchange = exchange, .timeout = timeout});
    meeting.end_call();
    meeting.exchange({});  // all have read what came before
  } else {
    TORCH_CHECK_WITH(DistBackendError, met.group != nullptr, "shardway: the ranks share no memory, ",
                     joined.why_not,
                     ": use init_process_group(\"gloo\"), on which shardway's own calls work on any hosts");
    meeting.end_call();
    std::vector<std::byte> rows(static_cast<size_t>(size));
    met.group->gather_notes({.rows = rows.data(), .row_bytes = 1});
  }
  meeting.clean_up(/*keeps_last=*/joined.spans_hosts);
  return met;
}

}  // namespace

Met meet(c10d::Store& store, int64_t rank, int64_t size, std::chrono::milliseconds timeout) {
  StoreMeeting meeting(store, rank, size, timeout);
  Met met;
  try {
    translated(
        rank, [&] { met = join(meeting, rank, size, timeout); }, "shardway");
  } catch (...) {
    try {
      meeting.end_call();
    } catch (const std::exception&) {  // the store is gone; the first error says more
    }
    throw;
  }
  return met;
}

std::shared_ptr<shm::SharedGroup> meet_on_one_host(c10d::Store& store, int64_t rank, int64_t size,
                                                   std::chrono::milliseconds timeout) {
  Met met = meet(store, rank, size, timeout);
  TORCH_CHECK_WITH(DistBackendError, met.group != nullptr, "shardway: the ranks are on several hosts (rank ",
                   rank, ")");
  return std::move(met.group);
}

}  // namespace shardway::backend
