// How ranks find out that they share a host, and how they come to share memory.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "shm/group.h"
#include "shm/process.h"
#include "shm/rendezvous.h"
#include "shm/retired.h"
#include "shm/vm_read.h"

namespace shardway::shm {
namespace {

constexpr uint64_t kVersion = 2;

// The first round: where to find a rank.
struct Hello {
  uint64_t version = kVersion;
  uint64_t is_willing = 0;
  Nonce arena = {};
  uint64_t address = 0;  // of the arena, in the rank's own process
  uint64_t doorway = 0;
  uint64_t group = 0;  // this rank's part of the group's number
  cpu_set_t cores = {};
  int64_t quota = -1;
  std::array<char, 128> why_not = {};
};

// The second round: what came of it.
struct Verdict {
  uint64_t is_met = 0;
  int64_t board = 0;  // its offset in the arena
  uint64_t can_read_processes = 0;
  std::array<char, 128> why_not = {};
};

template <class T>
std::vector<T> exchanged(const JoinOptions& options, const T& mine) {
  const std::vector<std::byte> all = options.exchange(std::as_bytes(std::span(&mine, 1)));
  if (all.size() != sizeof(T) * static_cast<size_t>(options.size))
    throw std::logic_error("the exchange gave " + std::to_string(all.size()) + " bytes");
  std::vector<T> result(static_cast<size_t>(options.size));
  std::memcpy(result.data(), all.data(), all.size());
  return result;
}

template <size_t size>
void set_text(std::array<char, size>& to, const std::string& text) {
  std::memcpy(to.data(), text.data(), std::min(size - 1, text.size()));
}

template <class T>
std::string text_of(const T& said, size_t rank) {
  const std::string text(said.why_not.data(), strnlen(said.why_not.data(), said.why_not.size()));
  return text + " (rank " + std::to_string(rank) + ")";
}

// This rank's side of the handshake.
class Joiner {
 public:
  explicit Joiner(const JoinOptions& options) : options_(options) {}

  Hello hello() {
    Hello hello{.cores = allowed_cores(), .quota = core_quota()};
    try {
      sweep_retired();
      arena_ = options_.arena ? options_.arena : Arena::of_process();
      Peer::announce(arena_);
      doorway_.emplace(*arena_);
      hello.group = random_nonce()[0];
      hello.arena = arena_->nonce();
      hello.doorway = doorway_->name();
      hello.address = reinterpret_cast<uintptr_t>(arena_->base());
      hello.is_willing = 1;
    } catch (const std::exception& error) {
      set_text(hello.why_not, error.what());
    }
    return hello;
  }

  Verdict meet(const std::vector<Hello>& hellos) {
    Verdict verdict;
    try {
      for (size_t rank = 0; rank < hellos.size(); ++rank) {
        const bool is_own = static_cast<int64_t>(rank) == options_.rank;
        peers_.push_back(is_own ? nullptr : peer_at(hellos[rank]));
      }
      verdict.can_read_processes = can_read(hellos) ? 1 : 0;
      board_ = fresh_board(hellos);
      verdict.board = arena_->offset_of(board_);
      verdict.is_met = 1;
    } catch (const std::exception& error) {
      set_text(verdict.why_not, error.what());
    }
    return verdict;
  }

  std::unique_ptr<Waiting> waiting(const std::vector<Hello>& hellos, const std::vector<Verdict>& verdicts) {
    const BoardPlan plan(options_.size);
    std::vector<Board> boards;
    std::vector<cpu_set_t> cores;
    std::vector<int64_t> quotas;
    for (size_t rank = 0; rank < hellos.size(); ++rank) {
      const bool is_own = static_cast<int64_t>(rank) == options_.rank;
      // Of a peer's board only payloads and rings are written, and mapped so.
      boards.emplace_back(
          is_own ? board_ : const_cast<std::byte*>(peers_[rank]->base()) + verdicts[rank].board, plan);
      cores.push_back(hellos[rank].cores);
      quotas.push_back(hellos[rank].quota);
    }
    const WaitOptions wait{.spins = every_rank_has_a_core(cores, quotas), .timeout = options_.timeout};
    return std::make_unique<Waiting>(options_.rank, number_of(hellos), std::move(boards), std::move(peers_),
                                     wait);
  }

  // Whether a peer's board lies where it says, as far as the mapping can tell.
  bool holds(const std::vector<Verdict>& verdicts) const {
    for (size_t rank = 0; rank < verdicts.size(); ++rank) {
      const bool is_own = static_cast<int64_t>(rank) == options_.rank;
      if (!is_own && !peers_[rank]->holds(verdicts[rank].board, BoardPlan(options_.size).bytes()))
        return false;
    }
    return true;
  }

  void give_up() {
    if (board_ != nullptr) arena_->free(board_);
  }

  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  std::shared_ptr<Peer> peer_at(const Hello& hello) const {
    if (auto known = Peer::find(hello.arena)) return known;
    return call_at(hello.doorway, hello.arena, options_.patience);
  }

  // Whether the system lets this rank read every peer's memory, and the process is the right one.
  bool can_read(const std::vector<Hello>& hellos) const {
    for (size_t rank = 0; rank < hellos.size(); ++rank) {
      if (peers_[rank] == nullptr) continue;
      ArenaHead head{};
      const int error = vm_read(peers_[rank]->pid(), hellos[rank].address,
                                reinterpret_cast<std::byte*>(&head), sizeof(head));
      if (error != 0 || head.nonce != hellos[rank].arena) return false;
    }
    return true;
  }

  // The same on every rank, and another for every group.
  static uint64_t number_of(const std::vector<Hello>& hellos) {
    uint64_t number = 1;
    for (const Hello& hello : hellos) number = number * 0x9e3779b97f4a7c15 + hello.group;
    return number;
  }

  std::byte* fresh_board(const std::vector<Hello>& hellos) {
    const BoardPlan plan(options_.size);
    std::byte* data = arena_->allocate_pages(plan.bytes());
    new (data) BoardHead{};
    for (int64_t peer = 0; peer < options_.size; ++peer) new (data + plan.pair(peer)) PairLine{};
    const Board board(data, plan);
    for (const uint64_t number : {0, 1}) board.header(number) = {};
    // Relaxed: the second round of the exchange comes between this and any peer's look.
    board.head().group.store(number_of(hellos), std::memory_order_relaxed);
    return data;
  }

  const JoinOptions& options_;
  std::shared_ptr<Arena> arena_;
  std::optional<Doorway> doorway_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::byte* board_ = nullptr;
};

}  // namespace

Joined Group::join(const JoinOptions& options) {
  Joiner joiner(options);
  const std::vector<Hello> hellos = exchanged(options, joiner.hello());
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (hellos[rank].version != kVersion)
      return {.why_not = "rank " + std::to_string(rank) + " has another version"};
    if (hellos[rank].is_willing != 0) continue;
    exchanged(options, Verdict{});
    return {.why_not = text_of(hellos[rank], rank)};
  }
  Verdict verdict = joiner.meet(hellos);
  const std::vector<Verdict> verdicts = exchanged(options, verdict);
  for (size_t rank = 0; rank < verdicts.size(); ++rank) {
    if (verdicts[rank].is_met != 0) continue;
    joiner.give_up();
    return {.why_not = text_of(verdicts[rank], rank)};
  }
  if (!joiner.holds(verdicts)) throw std::logic_error("a peer's board lies outside its memory");
  auto waiting = joiner.waiting(hellos, verdicts);
  const bool can_read_processes = std::all_of(
      verdicts.begin(), verdicts.end(), [](const Verdict& theirs) { return theirs.can_read_processes != 0; });
  std::shared_ptr<Group> group(new Group(joiner.arena(), std::move(waiting), can_read_processes));
  group->choose_ways(options.ways);
  return {.group = std::move(group)};
}

}  // namespace shardway::shm
