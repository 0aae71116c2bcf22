// How the ranks that are left of a group make another. See board/roll.h for what they write.
#include <algorithm>
#include <string>
#include <thread>

#include "record/recorder.h"
#include "shm/board/interrupt.h"
#include "shm/group/group.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;
using Ranks = std::vector<int64_t>;

constexpr auto kFirstNap = 50us;
constexpr auto kLongestNap = 1ms;

// A rank asks three times at the doorway of another, and must be back before its peers stop waiting for it.
constexpr int kPatiences = 8;

// Thrown in the middle of joining when the round is abandoned.
struct RoundOver {};

std::string text_of(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const char* separator = i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ";
    text += separator + std::to_string(ranks[i]);
  }
  return text;
}

// Whether the rank cannot come any more. What it did before is visible when this returns true.
bool is_gone(const GroupState& state, int64_t rank) {
  if (rank == state.waiting->rank()) return false;
  const Ended ended = state.waiting->ended(rank);
  const bool has_left = ended.how == End::left && ended.rank == rank;
  return has_left || state.memory->is_gone(rank) || has_ended(state.waiting->peer(rank).process());
}

// One rank's way through the rounds of the roll.
class Shrinking {
 public:
  Shrinking(const GroupState& state, std::chrono::milliseconds timeout)
      : state_(state),
        waiting_(*state.waiting),
        roll_(state.memory->roll(state.waiting->own().plan())),
        own_(state.waiting->rank()),
        timeout_(timeout) {}

  Subgroup run() {
    Ranks awaited;
    for (int64_t rank = 0; rank < waiting_.size(); ++rank) awaited.push_back(rank);
    for (int64_t round = 0; round < Roll::kRounds; ++round) {
      if (!has_been_in(round)) {
        if (auto made = made_in(round, awaited)) return std::move(*made);
      }
      std::erase_if(awaited, [&](int64_t rank) { return roll_.presence(round, rank) == Presence::out; });
    }
    throw PeerLost::said(own_, "the ranks gave up after " + std::to_string(Roll::kRounds) +
                                   " rounds, in each of which one of them was lost or late");
  }

 private:
  // Whether an earlier call of this rank came to the round, and threw.
  bool has_been_in(int64_t round) const {
    if (roll_.presence(round, own_) != Presence::in) return false;
    if (roll_.settle(round, Outcome::abandoned) == Outcome::made)
      throw std::invalid_argument("the group was shrunk before: shrink the group that came of it");
    return true;
  }

  // The group, or nothing if the round is over without one. The others hear of an exception by the outcome.
  std::optional<Subgroup> made_in(int64_t round, const Ranks& awaited) {
    try {
      return joined(round, members_of(round, awaited));
    } catch (const RoundOver&) {
      return std::nullopt;
    } catch (...) {
      if (roll_.presence(round, own_) == Presence::in) roll_.settle(round, Outcome::abandoned);
      throw;
    }
  }

  // Comes to the round, and waits until it is settled who is in it.
  Ranks members_of(int64_t round, const Ranks& awaited) {
    if (roll_.settle(round, own_, Presence::in) != Presence::in) refuse(round, awaited);
    wait([&] { return is_settled(round, awaited); });
    for (const int64_t rank : awaited)
      roll_.settle(round, rank, Presence::out);  // whose presence is open still
    return those_in(round, awaited);
  }

  bool is_settled(int64_t round, const Ranks& awaited) const {
    bool is_open = false;
    for (const int64_t rank : awaited) {
      if (roll_.presence(round, rank) != Presence::open) continue;
      if (is_gone(rank)) {
        roll_.settle(round, rank, Presence::out);
      } else {
        is_open = true;
      }
    }
    return !is_open;
  }

  Ranks those_in(int64_t round, const Ranks& awaited) const {
    Ranks in;
    for (const int64_t rank : awaited) {
      if (roll_.presence(round, rank) == Presence::in) in.push_back(rank);
    }
    return in;
  }

  bool is_gone(int64_t rank) const { return shm::is_gone(state_, rank); }

  [[noreturn]] void refuse(int64_t round, const Ranks& awaited) {
    const auto is_known = [&] {
      return std::none_of(awaited.begin(), awaited.end(),
                          [&](int64_t rank) { return roll_.presence(round, rank) == Presence::open; });
    };
    wait(is_known);
    const Ranks in = those_in(round, awaited);
    const std::string who = in.empty() ? "the other ranks" : text_of(in);
    throw PeerLost::said(own_, who + (in.size() == 1 ? " has" : " have") +
                                   " gone on in a smaller group, since this rank did not answer in time: it "
                                   "cannot join them any more");
  }

  std::optional<Subgroup> joined(int64_t round, const Ranks& members) {
    int64_t turn = 0;
    const auto exchange = [&](std::span<const std::byte> mine) {
      return exchanged(round, turn++, members, mine);
    };
    const auto own = std::find(members.begin(), members.end(), own_);
    JoinedGroup joined = SharedGroup::join({.rank = own - members.begin(),
                                            .size = static_cast<int64_t>(members.size()),
                                            .exchange = exchange,
                                            .arena = state_.arena,
                                            .timeout = waiting_.timeout(),
                                            .patience = std::max(timeout_ / kPatiences, 1ms)});
    if (joined.group) return Subgroup{.group = std::move(joined.group), .members = members};
    if (members == refused_)
      throw PeerLost::said(own_, text_of(members) + " are left and share no memory: " + joined.why_not);
    refused_ = members;  // a death may have been the cause; all members have heard the same
    return std::nullopt;
  }

  std::vector<std::byte> exchanged(int64_t round, int64_t turn, const Ranks& members,
                                   std::span<const std::byte> mine) {
    roll_.tell(round, turn, own_, mine);
    wait([&] { return have_told(round, turn, members) || is_over(round, turn, members); });
    const bool is_complete = have_told(round, turn, members);
    const bool is_last = turn + 1 == Roll::kTurns;
    if (!is_complete || is_last) {
      // If others were first and have made the group, all have told.
      const Outcome wanted = is_complete ? Outcome::made : Outcome::abandoned;
      if (roll_.settle(round, wanted) != Outcome::made) throw RoundOver{};
    }
    std::vector<std::byte> all(members.size() * mine.size());
    for (size_t i = 0; i < members.size(); ++i)
      roll_.hear(round, turn, members[i], std::span(all).subspan(i * mine.size(), mine.size()));
    return all;
  }

  bool have_told(int64_t round, int64_t turn, const Ranks& members) const {
    return std::all_of(members.begin(), members.end(),
                       [&](int64_t rank) { return roll_.has_told(round, turn, rank); });
  }

  // Whether somebody will not tell any more, or some rank has given up.
  bool is_over(int64_t round, int64_t turn, const Ranks& members) const {
    if (roll_.outcome(round) == Outcome::abandoned) return true;
    return std::any_of(members.begin(), members.end(),
                       [&](int64_t rank) { return !roll_.has_told(round, turn, rank) && is_gone(rank); });
  }

  // Returns when `is_over` returns true, or when the time is over.
  template <class IsOver>
  void wait(IsOver&& is_over) const {
    const auto start = std::chrono::steady_clock::now();
    auto last_check = start;
    auto nap = std::chrono::microseconds(kFirstNap);
    while (!is_over()) {
      const auto now = std::chrono::steady_clock::now();
      if (now - start > timeout_) return;
      if (now - last_check >= kInterruptEvery) {
        last_check = now;
        check_interrupt();
      }
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::microseconds>(2 * nap, kLongestNap);
    }
  }

  const GroupState& state_;
  const Waiting& waiting_;
  Roll roll_;
  int64_t own_;
  std::chrono::milliseconds timeout_;
  Ranks refused_ = {};  // the members that met and could not make a group
};

}  // namespace

void SharedGroup::revoke() {
  check_process();
  state_.waiting->end({.how = End::shrunk, .rank = rank()});
}

bool SharedGroup::has_gone(int64_t peer) const { return is_gone(state_, peer); }

Subgroup SharedGroup::shrink(std::optional<std::chrono::milliseconds> timeout) {
  const auto used = timeout.value_or(std::min(this->timeout(), kShrinkTimeout));
  if (used.count() < 0)
    throw std::invalid_argument("timeout=" + std::to_string(used.count()) + " ms is negative");
  revoke();
  record::OpenCall call({.op = "shrink", .number = number_, .group = id_, .rank = rank(), .size = size()});
  Subgroup made = Shrinking(state_, used).run();
  call.done();
  return made;
}

}  // namespace shardway::shm
