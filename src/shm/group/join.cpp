// How ranks find out that they share a host, and how they come to share memory.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <optional>
#include <thread>

#include "shm/board/group_memory.h"
#include "shm/board/retired.h"
#include "shm/group/group.h"
#include "shm/group/tune.h"
#include "shm/join/handshake.h"
#include "shm/join/rendezvous.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

// How often a rank of this host is asked for its memory before joining fails, and how long to wait in
// between.
constexpr int kTries = 3;
constexpr auto kPause = std::chrono::milliseconds(20);

template <class Word>
std::vector<Word> exchanged(const GroupOptions& options, const Word& mine) {
  return words_of<Word>(options.exchange(std::as_bytes(std::span(&mine, 1))), options.size);
}

// This rank's side of the handshake.
class Joiner {
 public:
  explicit Joiner(const GroupOptions& options) : options_(options), plan_(options.size) {}
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;
  ~Joiner() {
    if (board_ != nullptr) break_off();
  }

  Hello hello() {
    Hello hello{.host = host_mark(), .pid = getpid(), .cores = allowed_cores(), .quota = core_quota()};
    try {
      hello.processor = this_processor();
      hello.cores_at_cache = cores_at_cache_of(hello.cores);
      hello.pins = pins_of_environment();
      if (options_.rank == 0) hello.measured = measured_pins(options_.size);
    } catch (const std::invalid_argument& error) {
      hello.is_mistaken = 1;
      hello.why_not = reason_of(error.what());
      return hello;
    }
    try {
      sweep_retired();
      arena_ = options_.arena ? options_.arena : Arena::of_process();
      Peer::announce(arena_);
      process_ = handle_of_process();
      std::vector<int> files = {arena_->fd(), process_.get()};
      if (options_.rank == 0) {
        auto [memory, file] = GroupMemory::create(plan_);
        memory_ = std::move(memory);
        memory_file_ = std::move(file);
        hello.memory = memory_->nonce();
        files.push_back(memory_file_.get());
      }
      doorway_.emplace(std::move(files));
      hello.arena = arena_->nonce();
      hello.doorway = doorway_->name();
      hello.secret = doorway_->secret();
      hello.is_willing = 1;
    } catch (const std::exception& error) {
      hello.why_not = reason_of(error.what());
    }
    return hello;
  }

  Verdict meet(const std::vector<Hello>& hellos) {
    Verdict verdict;
    try {
      for (size_t rank = 0; rank < hellos.size(); ++rank) {
        const bool is_own = static_cast<int64_t>(rank) == options_.rank;
        peers_.push_back(nullptr);
        if (!is_own) call(rank, hellos);
      }
      board_ = fresh_board();
      verdict.board = arena_->offset_of(board_);
      verdict.is_met = 1;
    } catch (const std::exception& error) {
      verdict.why_not = reason_of(error.what());
    }
    return verdict;
  }

  // Whether every peer's board lies where it says, as far as the mapping can tell.
  bool holds(const std::vector<Verdict>& verdicts) const {
    for (size_t rank = 0; rank < verdicts.size(); ++rank) {
      const bool is_own = static_cast<int64_t>(rank) == options_.rank;
      if (is_own) continue;
      const int64_t board = verdicts[rank].board;
      if (board % int64_t{alignof(BoardHead)} != 0 || !peers_[rank]->holds(board, plan_.bytes()))
        return false;
    }
    return true;
  }

  std::unique_ptr<Waiting> waiting(const std::vector<Hello>& hellos, const std::vector<Verdict>& verdicts) {
    std::vector<Board> boards;
    std::vector<cpu_set_t> cores;
    std::vector<int64_t> quotas;
    for (size_t rank = 0; rank < hellos.size(); ++rank) {
      const bool is_own = static_cast<int64_t>(rank) == options_.rank;
      // A peer's board is mapped read-only; its section is for everybody to write.
      boards.emplace_back(
          is_own ? board_ : const_cast<std::byte*>(peers_[rank]->base()) + verdicts[rank].board,
          memory_->section(plan_, static_cast<int64_t>(rank)), plan_);
      cores.push_back(hellos[rank].cores);
      quotas.push_back(hellos[rank].quota);
    }
    // Where ranks share cores, a core that comes back late is often that of a rank that works.
    const bool has_core = every_rank_has_a_core(cores, quotas);
    const WaitOptions wait{
        .spins = has_core, .avoids_crowds = has_core || options_.avoids_crowds, .timeout = options_.timeout};
    board_ = nullptr;  // the group's from now on
    return std::make_unique<Waiting>(options_.rank, std::move(boards), std::move(peers_), wait);
  }

  // Nobody joins, and everybody knows it.
  void give_up() {
    if (memory_) memory_->say_gone(options_.rank);
    if (board_ != nullptr) arena_->free(std::exchange(board_, nullptr));
  }

  const std::shared_ptr<Arena>& arena() const { return arena_; }

  const std::shared_ptr<GroupMemory>& memory() const { return memory_; }

 private:
  // Finds the peer's arena and, if the peer is rank 0, the group's memory. After a failure it tries again if
  // both ranks should see the same sockets: then the failure is no sign of another host.
  void call(size_t rank, const std::vector<Hello>& hellos) {
    const Hello& theirs = hellos[rank];
    const bool is_near = theirs.host == hellos[static_cast<size_t>(options_.rank)].host;
    for (int tries = 1;; ++tries) {
      try {
        return call_once(rank, theirs);
      } catch (const std::exception& error) {
        if (is_near && tries < kTries) {
          std::this_thread::sleep_for(kPause);
          continue;
        }
        throw std::runtime_error(name_of(rank, theirs) + " could not be met: " + error.what() +
                                 (is_near ? "; tried " + std::to_string(tries) + " times" : "") +
                                 "; it runs " + place_of(theirs.host, host_mark()));
      }
    }
  }

  void call_once(size_t rank, const Hello& theirs) {
    peers_[rank] = Peer::find(theirs.arena);
    if (rank == 0) memory_ = GroupMemory::find(theirs.memory);
    if (peers_[rank] && (rank != 0 || memory_)) return;
    Handed handed = call_at(theirs.doorway, theirs.secret, options_.patience);
    if (!peers_[rank])
      peers_[rank] =
          Peer::remember(std::make_shared<Peer>(handed.arena, std::move(handed.process), theirs.arena));
    if (rank != 0) return;
    if (!handed.memory) throw std::runtime_error("it hands no memory of the group out");
    memory_ = GroupMemory::open(handed.memory, theirs.memory, plan_);
  }

  // The exchange failed here. Peers for which it did not may have joined: they learn from the board that this
  // rank left, and it is freed when none of them looks at it any more. The boards of the peers are unknown
  // and not needed for that.
  void break_off() {
    const Board own(board_, memory_->section(plan_, options_.rank), plan_);
    const std::vector<Board> boards(static_cast<size_t>(options_.size), own);
    auto waiting = std::make_unique<Waiting>(options_.rank, boards, peers_, WaitOptions{});
    waiting->end({.how = End::left, .rank = options_.rank});
    retire({.arena = arena_, .memory = memory_, .waiting = std::move(waiting), .messages = {}});
  }

  std::byte* fresh_board() {
    std::byte* data = arena_->allocate(plan_.bytes());
    new (data) BoardHead{};
    for (int64_t peer = 0; peer < options_.size; ++peer) new (data + plan_.pair(peer)) PairLine{};
    const Board board(data, nullptr, plan_);
    for (const uint64_t number : {0, 1}) board.header(number) = {};
    return data;
  }

  const GroupOptions& options_;
  BoardPlan plan_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<GroupMemory> memory_;
  File memory_file_;  // on rank 0
  File process_;
  std::optional<Doorway> doorway_;  // hands the files out
  std::vector<std::shared_ptr<Peer>> peers_;
  std::byte* board_ = nullptr;  // freed unless the group gets it
};

std::vector<int64_t> ranks_elsewhere(const std::vector<Hello>& hellos, int64_t own) {
  std::vector<int64_t> ranks;
  for (size_t rank = 0; rank < hellos.size(); ++rank) {
    if (are_apart(hellos[rank].host, hellos[static_cast<size_t>(own)].host))
      ranks.push_back(static_cast<int64_t>(rank));
  }
  return ranks;
}

JoinedGroup no_group(const std::string& why_not, const std::vector<Hello>& hellos, int64_t own) {
  const auto has_others = [&](const Hello& hello) {
    return std::any_of(hellos.begin(), hellos.end(),
                       [&](const Hello& other) { return are_apart(hello.host, other.host); });
  };
  return {.why_not = why_not,
          .elsewhere = ranks_elsewhere(hellos, own),
          .spans_hosts = std::any_of(hellos.begin(), hellos.end(), has_others)};
}

}  // namespace

JoinedGroup SharedGroup::join(const GroupOptions& options) {
  Joiner joiner(options);
  const std::vector<Hello> hellos = exchanged(options, joiner.hello());
  const auto mistake = mistake_of(hellos);
  if (auto why_not = mistake ? mistake : refusal_of(hellos)) {
    exchanged(options, Verdict{});
    if (mistake) throw std::invalid_argument(*mistake);
    return no_group(*why_not, hellos, options.rank);
  }
  const std::vector<Verdict> verdicts = exchanged(options, joiner.meet(hellos));
  if (auto why_not = refusal_of(verdicts)) {
    joiner.give_up();
    return no_group(*why_not, hellos, options.rank);
  }
  if (!joiner.holds(verdicts)) throw std::logic_error("a peer's board lies outside its memory");
  auto waiting = joiner.waiting(hellos, verdicts);
  const Tuning tuning = tune(options, hellos, waiting->spins());
  std::shared_ptr<SharedGroup> group(
      new SharedGroup(joiner.arena(), joiner.memory(), std::move(waiting), tuning));
  return {.group = std::move(group)};
}

}  // namespace shardway::shm
