#include "shm/board/waiting.h"

#include <sched.h>

#include <algorithm>

#include "shm/board/futex.h"
#include "shm/board/interrupt.h"
#include "shm/board/long_wait.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

std::string reason_of(const Ended& ended, std::chrono::milliseconds timeout) {
  switch (ended.how) {
    case End::left:
      return "it left the group";
    case End::died:
      return "its process ended";
    case End::timed_out:
      return "it did not answer within the timeout of " + std::to_string(timeout.count()) + " ms";
    case End::aborted:
      return "it aborted the group";
    case End::unanswered:
      return "a message that it waited for did not arrive in time";
    case End::interrupted:
      return "it was interrupted";
    case End::shrunk:
      return "it goes on in a smaller group: call shrink on every rank";
    default:
      return "its call failed";
  }
}

}  // namespace

Waiting::Waiting(int64_t rank, std::vector<Board> boards, std::vector<std::shared_ptr<Peer>> peers,
                 const WaitOptions& options)
    : rank_(rank),
      boards_(std::move(boards)),
      peers_(std::move(peers)),
      options_(options),
      spins_(options.spins ? kSpins : 1),
      timeout_(options.timeout) {}

void Waiting::ring() const {
  BoardHead& head = own().head();
  // This rank changes the bell and looks at the sleepers; a sleeper marks itself and looks at the bell
  // (fall_asleep). All four have one order (seq_cst), so at least one of the two sees the other. A sleeper
  // that sees the bell sees the change, which comes before.
  head.bell.fetch_add(1, std::memory_order_seq_cst);
  if (somebody_sleeps(std::memory_order_seq_cst)) futex_wake_all(head.bell);
}

void Waiting::end(const Ended& ended, const PeerLost& thrown) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_) lost_.emplace(thrown);
    is_lost_.store(true, std::memory_order_release);  // pairs with the acquire in is_lost()
  }
  uint32_t nobody = 0;
  // Release: pairs with the acquire in ended(); what this rank put before it left is there. The first reason
  // stays.
  own().head().ended.compare_exchange_strong(nobody, word_of(ended), std::memory_order_release);
  // Pairs with the fence in check_owners: whoever reads what this rank's caller writes from now on sees the
  // end.
  std::atomic_thread_fence(std::memory_order_release);
  ring();
}

// Acquire: pairs with the release in end(); a waiter that sees the end looks once more for what came before.
Ended Waiting::ended(int64_t peer) const {
  const uint32_t word = board(peer).head().ended.load(std::memory_order_acquire);
  if (word == 0) return {};
  const Ended ended = ended_of(word);
  return ended.rank < size() ? ended : Ended{.how = End::failed, .rank = peer};
}

std::optional<Ended> Waiting::find_end(const WaitedFor& waited_for) const {
  if (is_lost()) return ended(rank_);  // another thread of this rank ended it
  // What others say comes first: a rank that was told of a death may have ended because of it.
  for (int64_t peer = 0; peer < size(); ++peer) {
    const Ended found = peer == rank_ ? Ended{} : ended(peer);
    // A rank that has left may have done its part before; one that was told of another's end raises.
    const bool has_just_left = found.how == End::left && found.rank == peer;
    if (found.how != End::none && !has_just_left) return found;
  }
  return find_end_among(waited_for);
}

std::optional<Ended> Waiting::find_end_among(const WaitedFor& waited_for) const {
  std::optional<Ended> found;
  for (const int64_t needed : waited_for.peers) {
    // Other ranks that have left may have done their part before; those that are waited for have not.
    const Ended gone =
        has_ended(peer(needed).process()) ? Ended{.how = End::died, .rank = needed} : ended(needed);
    if (gone.how == End::died || gone.how == End::left) {
      found = gone;
      if (!waited_for.any_will_do) return found;
    } else if (waited_for.any_will_do) {
      return std::nullopt;
    }
  }
  return found;
}

int64_t Waiting::held_up_by(int64_t peer) const {
  for (int64_t step = 0; step < size(); ++step) {
    if (is_stopped(peer)) return peer;
    const int64_t next = board(peer).head().awaited.load(std::memory_order_relaxed);
    if (next < 0 || next >= size()) return peer;
    if (next == rank_) break;
    peer = next;
  }
  // Each rank shows one of those that it waits for, so ranks that wait for another one may show each other.
  for (int64_t rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && is_stopped(rank)) return rank;
  }
  return peer;
}

bool Waiting::waits_elsewhere(int64_t peer) const {
  return board(peer).head().awaited.load(std::memory_order_relaxed) == kSomebodyElsewhere &&
         !is_stopped(peer);
}

bool Waiting::is_stopped(int64_t peer) const {
  const File& process = this->peer(peer).process();
  return process && state_of(pid_of(process)) == ProcessState::stopped;
}

void Waiting::check_owners(const Few<int64_t>& owners) {
  // Acquire: pairs with the fence in end().
  std::atomic_thread_fence(std::memory_order_acquire);
  for (const int64_t owner : owners) check_peer(owner);
}

PeerLost Waiting::told(const Ended& about) const {
  if (about.rank != rank_) return {about.rank, reason_of(about, timeout())};
  for (int64_t peer = 0; peer < size(); ++peer) {
    const bool is_blamed_by = peer != rank_ && ended(peer).how == about.how && ended(peer).rank == rank_;
    if (is_blamed_by && (about.how == End::timed_out || about.how == End::died))
      return {peer, "it gave the group up, since this rank did not answer in time"};
  }
  switch (about.how) {
    case End::aborted:
      return PeerLost::said(rank_, "this rank aborted the group");
    case End::left:
      return PeerLost::said(rank_, "this rank left the group");
    case End::interrupted:
      return PeerLost::said(rank_, "a call of this rank ended the group: it was interrupted");
    case End::shrunk:
      return PeerLost::said(rank_, "this rank has shrunk the group: use the smaller one");
    default:
      return PeerLost::said(rank_, "a call of this rank failed, and ended the group");
  }
}

// If the user interrupts, tells the others that this rank will not finish what it has begun.
void Waiting::check_interrupt() {
  try {
    shm::check_interrupt();
  } catch (...) {
    end({.how = End::interrupted, .rank = rank_});
    throw;
  }
}

PeerLost Waiting::lose(const Ended& ended) {
  end(ended);
  return lost();
}

PeerLost Waiting::lost() const {
  const std::lock_guard lock(mutex_);
  return *lost_;
}

Waiting::Patience::Patience(Waiting& waiting, WaitedFor waited_for, std::chrono::milliseconds nap,
                            std::chrono::milliseconds timeout)
    : waiting_(waiting),
      waited_for_(std::move(waited_for)),
      nap_(nap),
      timeout_(timeout),
      start_(Clock::now()),
      last_look_(start_),
      last_check_(start_) {}

// Returns true only if this matters to the group.
bool Waiting::Patience::gave_core_away_for_long() const {
  if (!waiting_.options_.avoids_crowds) {
    sched_yield();
    return false;
  }
  const auto before = Clock::now();
  sched_yield();
  return Clock::now() - before >= kYieldFor;
}

std::optional<Ended> Waiting::Patience::look_around(Clock::time_point now) {
  // Not in a short wait, where one more check would cost too much.
  if (has_looked_ && now - last_check_ >= kInterruptEvery) {
    last_check_ = now;
    waiting_.check_interrupt();
    notice_wait(now - start_);
  }
  last_look_ = now;
  has_looked_ = true;
  if (const auto ended = waiting_.find_end(waited_for_)) return ended;
  const int64_t awaited = waited_for_.peers.front();
  if (now - start_ > timeout_) {
    const int64_t culprit = waiting_.held_up_by(awaited);
    if (now - start_ > 2 * timeout_ || !waiting_.waits_elsewhere(culprit))
      return Ended{.how = End::timed_out, .rank = culprit};
  }
  if (timeout_ != kNoLimit)
    waiting_.own().head().awaited.store(static_cast<int32_t>(awaited), std::memory_order_relaxed);
  return std::nullopt;
}

Waiting::Patience::~Patience() {
  waits_of_thread().waited_ns += std::chrono::nanoseconds(Clock::now() - start_).count();
  if (has_looked_ && timeout_ != kNoLimit)
    waiting_.own().head().awaited.store(kNobody, std::memory_order_relaxed);
}

uint32_t Waiting::Patience::fall_asleep() {
  // Both seq_cst: see ring().
  waiting_.own().head().asleep.fetch_add(1, std::memory_order_seq_cst);
  return waiting_.board(waited_for_.peers.front()).head().bell.load(std::memory_order_seq_cst);
}

void Waiting::Patience::sleep(uint32_t bell) {
  const auto nap = waiting_.idle_work_ ? std::min(nap_, kShortNap) : nap_;
  futex_wait(waiting_.board(waited_for_.peers.front()).head().bell, bell, nap);
}

// Relaxed: a peer that sees it late makes a wake-up call that wakes nobody.
void Waiting::Patience::wake_up() { waiting_.own().head().asleep.fetch_sub(1, std::memory_order_relaxed); }

}  // namespace shardway::shm
