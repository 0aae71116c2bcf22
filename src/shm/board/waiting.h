// How a rank waits for its peers, and how it learns that it need not wait any more.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shm/board/board.h"
#include "shm/kernels/small_vector.h"
#include "shm/memory/errors.h"
#include "shm/memory/peer.h"

namespace shardway::shm {

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct WaitOptions {
  bool spins = false;          // every rank has a core: look often before giving this one away
  bool avoids_crowds = false;  // sleep at once while other programs hold the cores: see Patience
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

// Whom a rank waits for. It sleeps on the bell of the first.
struct WaitedFor {
  std::vector<int64_t> peers;
  bool any_will_do = false;  // it is enough that one of them is there
};

// One thread at a time waits for collectives; others may wait for messages meanwhile.
class Waiting {
 public:
  // `boards` and `peers` by rank; this rank's own board is the one that it writes.
  Waiting(int64_t rank, std::vector<Board> boards, std::vector<std::shared_ptr<Peer>> peers,
          const WaitOptions& options);

  int64_t rank() const { return rank_; }
  int64_t size() const { return static_cast<int64_t>(boards_.size()); }
  const Board& own() const { return boards_[static_cast<size_t>(rank_)]; }
  const Board& board(int64_t rank) const { return boards_[static_cast<size_t>(rank)]; }
  const Peer& peer(int64_t rank) const { return *peers_[static_cast<size_t>(rank)]; }

  // Wakes whoever sleeps on this rank's board. Must follow every change of the board.
  void ring() const;

  // The same after a change that another will soon follow. A peer that falls asleep at this moment may miss
  // the change and sleep until the next one. In return, this rank need not wait until all that it has written
  // is visible.
  void ring_in_passing() const {
    if (somebody_sleeps(std::memory_order_relaxed)) ring();
  }

  // Shows the peers where this rank runs.
  void show_core() const {
    if (!options_.spins) return;
    std::atomic<int32_t>& shown = own().head().core;  // relaxed: a hint, which may come late
    const int core = sched_getcpu();
    if (shown.load(std::memory_order_relaxed) != core) shown.store(core, std::memory_order_relaxed);
  }

  // Returns once `ready` returns true, which the named peer brings about. Throws PeerLost if the peer cannot
  // do so any more, or does not in time; then the group is ended.
  template <class Ready>
  void until(int64_t peer, Ready&& ready) {
    if (spun(ready)) return;
    Patience patience(*this, {.peers = {peer}}, kNap, timeout());
    while (!ready()) patience.step(ready);
  }

  // The same if each of several peers has to do something, in any order. In a long wait `peers` is called for
  // those that have not done it yet.
  template <class Peers, class Ready>
  void until_any(Peers&& peers, Ready&& ready) {
    if (spun(ready)) return;
    Patience patience(*this, {.peers = peers()}, kShortNap, timeout());
    while (!ready()) patience.step(ready, [&] { return WaitedFor{.peers = peers()}; });
  }

  // Returns whether `ready` returns true within this time. Throws PeerLost as until does.
  template <class Ready>
  bool within(std::chrono::milliseconds time, const WaitedFor& waited_for, Ready&& ready) {
    if (spun(ready)) return true;
    const auto end = Clock::now() + time;
    // Only this clock ends the wait: on a busy machine a look may take longer than any other limit.
    Patience patience(*this, waited_for, waited_for.peers.size() == 1 ? kNap : kShortNap, kNoLimit);
    while (!ready()) {
      if (Clock::now() > end) return false;
      patience.step(ready);
    }
    return true;
  }

  // A thread that waits for longer does this now and then; it must not throw. Set before the first call.
  void set_idle_work(std::function<void()> work) { idle_work_ = std::move(work); }

  // While one lives, this rank waits for somebody outside of the group, for a limited time. Peers that wait
  // for it meanwhile do not blame it: it will raise, and tell them, when that time is over.
  class Elsewhere {
   public:
    explicit Elsewhere(const Waiting& waiting) : awaited_(waiting.own().head().awaited) {
      awaited_.store(kSomebodyElsewhere, std::memory_order_relaxed);
    }
    ~Elsewhere() { awaited_.store(kNobody, std::memory_order_relaxed); }
    Elsewhere(const Elsewhere&) = delete;
    Elsewhere& operator=(const Elsewhere&) = delete;

   private:
    std::atomic<int32_t>& awaited_;
  };

  // Throws PeerLost when the group was ended before, by this rank or by another.
  void check() {
    if (is_lost()) throw lost();
    for (int64_t peer = 0; peer < size(); ++peer) {
      // Relaxed: in the usual call nothing follows from it; ended() looks again, with acquire.
      if (peer != rank_ && board(peer).head().ended.load(std::memory_order_relaxed) != 0)
        throw lose(ended(peer));
    }
  }

  // The same, but looks only at this peer, and at whether this rank has ended the group.
  void check_peer(int64_t peer) {
    if (is_lost()) throw lost();
    if (const Ended theirs = ended(peer); theirs.how != End::none) throw lose(theirs);
  }

  // Must follow reads of tensors that lie in these peers' arenas. A rank that gives the group up waits for no
  // reader: its caller may have changed the tensor meanwhile.
  void check_owners(const Few<int64_t>& owners);

  // Acquire: pairs with the release in end().
  bool is_lost() const { return is_lost_.load(std::memory_order_acquire); }

  // Throws PeerLost when this rank knows that the group is over.
  void check_lost() const {
    if (is_lost()) throw lost();
  }

  // Tells every peer that the group is over. This rank's later calls throw `thrown`, or without it what
  // `told` returns.
  void end(const Ended& ended) { end(ended, told(ended)); }
  void end(const Ended& ended, const PeerLost& thrown);

  // Returns how the group ended according to this peer; End::none if the peer did not say that it is over.
  Ended ended(int64_t peer) const;

  bool spins() const { return options_.spins; }
  std::chrono::milliseconds timeout() const { return timeout_.load(std::memory_order_relaxed); }
  void set_timeout(std::chrono::milliseconds timeout) { timeout_.store(timeout, std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365 * 100);

  // How long a crowd is taken for granted.
  static constexpr std::chrono::milliseconds kCrowdedFor{100};

  // A wait that goes on after the first looks: yields, then sleeps, and checks now and then who is still
  // there.
  //
  // A yield may give the core to another program, which keeps it for milliseconds, whereas a sleeper that is
  // woken gets a core soon. So if a core comes back late, and nothing has been done meanwhile that this rank
  // waits for, the cores are crowded.
  class Patience {
   public:
    Patience(Waiting& waiting, WaitedFor waited_for, std::chrono::milliseconds nap,
             std::chrono::milliseconds timeout);
    ~Patience();
    Patience(const Patience&) = delete;
    Patience& operator=(const Patience&) = delete;

    // `still` returns whom the rank still waits for.
    template <class Ready, class Still>
    void step(Ready& ready, Still&& still) {
      for (int look = 0; look < 16 && yields(); ++look) {
        if (ready()) return;
        if (gave_core_away_for_long() && !ready()) waiting_.expect_crowd();
      }
      if (waiting_.idle_work_) waiting_.idle_work_();
      const auto now = Clock::now();
      if (now - last_look_ >= kLookEvery || !has_looked_) {
        if (look_around(now)) {
          // What a peer did before its end is visible by now, so a peer that has done its part is not missed.
          waited_for_ = still();
          if (ready()) return;
          if (const std::optional<Ended> ended = look_around(now)) throw waiting_.lose(*ended);
        }
      }
      if (now - start_ < kYieldFor && yields()) return;
      const uint32_t bell = fall_asleep();
      if (!ready()) sleep(bell);
      wake_up();
    }

    template <class Ready>
    void step(Ready& ready) {
      step(ready, [this] { return waited_for_; });
    }

   private:
    // A peer that waits for another host comes back no sooner than a sleeper wakes up, and what moves its
    // messages needs a core.
    bool yields() const {
      return !waiting_.is_crowded() &&
             (waiting_.spins() || !waiting_.waits_elsewhere(waited_for_.peers.front()));
    }
    bool gave_core_away_for_long() const;
    std::optional<Ended> look_around(Clock::time_point now);
    uint32_t fall_asleep();
    void sleep(uint32_t bell);
    void wake_up();

    Waiting& waiting_;
    WaitedFor waited_for_;
    std::chrono::milliseconds nap_;
    std::chrono::milliseconds timeout_;
    Clock::time_point start_;
    Clock::time_point last_look_;
    Clock::time_point last_check_;  // for an interrupt
    bool has_looked_ = false;
  };

  // Relaxed: a hint that other threads of this rank may share.
  bool is_crowded() const {
    return options_.avoids_crowds &&
           Clock::now().time_since_epoch().count() < crowded_until_.load(std::memory_order_relaxed);
  }
  void expect_crowd() {
    crowded_until_.store((Clock::now() + kCrowdedFor).time_since_epoch().count(), std::memory_order_relaxed);
  }

  template <class Ready>
  bool spun(Ready& ready) const {
    for (int look = 0; look < spins_; ++look) {
      if (ready()) return true;
      if (look == kLooksBesidePeer && is_beside_peer()) return false;
      pause_core();
    }
    return ready();
  }

  // Whether a peer's last known core is the one that this rank runs on now: there the peer cannot go on.
  bool is_beside_peer() const {
    const int core = sched_getcpu();
    for (int64_t peer = 0; peer < size(); ++peer) {
      if (peer != rank_ && board(peer).head().core.load(std::memory_order_relaxed) == core) return true;
    }
    return false;
  }

  bool somebody_sleeps(std::memory_order order) const {
    for (int64_t peer = 0; peer < size(); ++peer) {
      if (peer != rank_ && board(peer).head().asleep.load(order) != 0) return true;
    }
    return false;
  }
  std::optional<Ended> find_end(const WaitedFor& waited_for) const;
  std::optional<Ended> find_end_among(const WaitedFor& waited_for) const;
  // Follows the ranks that wait for one another, from `peer` on, to the one that keeps them all waiting.
  int64_t held_up_by(int64_t peer) const;
  bool waits_elsewhere(int64_t peer) const;
  bool is_stopped(int64_t peer) const;
  void check_interrupt();
  PeerLost lose(const Ended& ended);
  PeerLost lost() const;
  // What this rank's calls throw after such an end. The text differs if this rank ended the group itself, or
  // if a peer blames it.
  PeerLost told(const Ended& about) const;

  int64_t rank_;
  std::vector<Board> boards_;
  std::vector<std::shared_ptr<Peer>> peers_;
  WaitOptions options_;
  int spins_;
  std::atomic<std::chrono::milliseconds> timeout_;  // relaxed: nothing else depends on it
  std::atomic<Clock::rep> crowded_until_{0};
  std::atomic<bool> is_lost_{false};  // stored after lost_, which does not change any more
  mutable std::mutex mutex_;
  std::optional<PeerLost> lost_;
  std::function<void()> idle_work_;
};

}  // namespace shardway::shm
