// Ranks of one host that share memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shardway/join.h"
#include "shm/board/subject.h"
#include "shm/calls/contiguous.h"
#include "shm/calls/group_state.h"
#include "shm/calls/part.h"

namespace shardway::shm {

using shardway::Exchange;

inline constexpr std::chrono::milliseconds kShrinkTimeout = std::chrono::seconds(10);

struct AllReduce;

struct GroupOptions {
  int64_t rank = 0;
  int64_t size = 1;
  Exchange exchange = {};
  std::shared_ptr<Arena> arena = nullptr;  // without: the process's own
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // for a peer's answer at its socket
  std::optional<Tuning> tuning = std::nullopt;                    // the same on every rank; without: tune.h
  bool avoids_crowds = false;  // also where ranks share cores; see WaitOptions
};

class SharedGroup;

// A group, or why these ranks have none. Either all ranks have one or no rank has.
struct JoinedGroup {
  std::shared_ptr<SharedGroup> group = nullptr;
  std::string why_not = {};
  std::vector<int64_t> elsewhere = {};  // without a group: the ranks on other hosts
  bool spans_hosts = false;             // without a group, the same on every rank: two ranks are on two hosts
};

// A part of a group: this rank's, and the ranks of the whole that are in it.
struct Subgroup {
  std::shared_ptr<SharedGroup> group = nullptr;
  std::vector<int64_t> members = {};
};

// What the ranks tell one another in a call before anything moves. Notes may differ in length, up to
// kNoteBytes and to `row_bytes`, which is the same on all ranks.
struct Talk {
  std::span<const std::byte> note = {};  // this rank's
  std::byte* rows = nullptr;             // where all notes go, each to the beginning of its row
  int64_t row_bytes = 0;
  int64_t* lengths = nullptr;         // if given: where each rank's length goes
  std::function<bool()> agrees = {};  // when all are there: whether the call goes on, the same on every rank
};

// Calls are collective unless said otherwise, made by one thread at a time, in the same order on every
// rank. They throw PeerLost for a peer that is gone; then every later call does. Where the ranks' calls have
// different subjects, all throw the same Disagreement. In a child of fork they throw WrongProcess.
class SharedGroup {
 public:
  // Collective. Exchanges twice, whatever happens. Throws std::invalid_argument, on every rank, where
  // SHARDWAY_TUNING is invalid or differs; another exception is the exchange's own.
  static JoinedGroup join(const GroupOptions& options);

  // Tells the others that this rank has left.
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int64_t rank() const { return state_.waiting->rank(); }
  int64_t size() const { return state_.waiting->size(); }
  const std::shared_ptr<Arena>& arena() const { return state_.arena; }

  // Messages between two ranks. Any thread may call. Throws WrongProcess in a child of fork.
  Mailbox& mailbox();

  // What a thread that waits in a call does now and then. Set before the first call.
  void set_idle_work(std::function<void()> work) { state_.waiting->set_idle_work(std::move(work)); }

  // See Waiting::Elsewhere. Any thread may make one.
  Waiting::Elsewhere wait_elsewhere() const { return Waiting::Elsewhere(*state_.waiting); }

  // From now on every call of any rank throws PeerLost, those under way too. Any thread may call.
  void leave() { state_.waiting->end({.how = End::left, .rank = rank()}); }
  void abort() { state_.waiting->end({.how = End::aborted, .rank = rank()}); }
  void interrupt() { state_.waiting->end({.how = End::interrupted, .rank = rank()}); }
  bool is_lost() const { return state_.waiting->is_lost(); }

  // The same, for a rank that is about to shrink the group. Throws WrongProcess in a child of fork.
  void revoke();

  // Makes a group of the ranks that call this, in their order, and revokes the old one. Ranks that have died
  // or left are left out, and so are those that do not come within the timeout of another rank. It need not
  // be the same on all ranks; without one it is the group's timeout, at most kShrinkTimeout. Needs nothing
  // but the memory of the old group. Throws PeerLost if this rank was left out, and if the ranks cannot make
  // a group; std::invalid_argument if the group was shrunk before.
  Subgroup shrink(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

  // Local, on any thread: whether the peer will do no more for this group, for another reason than that it
  // has left: its process has ended, or it says that the group is over.
  bool is_over_for(int64_t peer) const;

  // Local, on any thread: whether the peer's process has ended, or the peer has left the group.
  bool has_gone(int64_t peer) const;

  // See GroupMemory. They live as long as the group.
  std::span<std::byte> stream_words() const;

  std::chrono::milliseconds timeout() const { return state_.waiting->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) { state_.waiting->set_timeout(timeout); }

  // Gathers every rank's note on every rank; no tensor moves.
  void gather_notes(const Talk& talk, const Subject& subject = {}) { run(Part{}, subject, &talk); }

  // Returns once all ranks have come.
  void barrier();

  // Runs this rank's part of a collective; the others run theirs. The talk takes place in the same meeting. A
  // part needs its input and its pushes before the talk; the rest may be set during the talk. Returns whether
  // the call went on after it.
  bool run(const Part& part, const Subject& subject = {}, const Talk* talk = nullptr);
  bool run(const ContiguousCall& call, const Subject& subject = {}, const Talk* talk = nullptr);
  bool run(const AllReduce& all_reduce, const Subject& subject = {}, const Talk* talk = nullptr);

  // Runs up to kMostParts parts at once, one per tensor. Their pulls say where in the peers' inputs the boxes
  // lie, except for one part, whose owners list the offsets.
  void run(const PartList& parts, const Subject& subject = {});

  // Stands for the group in the records of its ranks; the same on all of them.
  uint64_t id() const { return id_; }

  // How many calls were made. Between two calls it is the same on every rank.
  uint64_t calls() const { return number_; }

 private:
  SharedGroup(std::shared_ptr<Arena> arena, std::shared_ptr<GroupMemory> memory,
              std::unique_ptr<Waiting> waiting, const Tuning& tuning);

  bool run_in_shares(const AllReduce& all_reduce, const Subject& subject, const Talk* talk);
  bool goes_on(uint64_t number, const Talk* talk);
  void run_skewed(uint64_t number, const Part& part, Path path, int64_t heavy);

  uint64_t next_number(const Subject& subject, const Talk* talk = nullptr);
  void check_process() const;
  template <class Say, class Rest>
  void guarded(const Subject& subject, int64_t bytes, Say&& say, Rest&& rest);
  template <class Body>
  void attempt(const Subject& subject, Body&& body);
  void report(const PeerLost& lost);
  [[noreturn]] void tell_apart(const Subject& subject);

  GroupState state_;
  uint64_t number_ = 0;
  uint64_t generation_;
  uint64_t id_;
  bool has_reported_ = false;
};

}  // namespace shardway::shm
