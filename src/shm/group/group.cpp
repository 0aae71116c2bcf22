#include "shm/group/group.h"

#include <algorithm>
#include <cstring>

#include "shm/board/retired.h"
#include "shm/calls/all_reduce.h"
#include "shm/calls/execution.h"
#include "shm/calls/header.h"
#include "shm/calls/skewed_reduce_scatter.h"
#include "shm/kernels/copy.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

constexpr uint64_t kTelling = mark_of("telling");
constexpr uint64_t kBarrier = mark_of("barrier");
constexpr int64_t kWordsBytes = 512;

std::span<const std::byte> note_of(const Talk* talk) {
  return talk == nullptr ? std::span<const std::byte>() : talk->note;
}

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<Arena> arena, std::shared_ptr<GroupMemory> memory,
                         std::unique_ptr<Waiting> waiting, const Tuning& tuning)
    : state_{.arena = std::move(arena),
             .memory = std::move(memory),
             .waiting = std::move(waiting),
             .mailbox = nullptr,
             .tuning = tuning},
      generation_(fork_generation()) {
  state_.mailbox = std::make_unique<Mailbox>(state_.arena, *state_.waiting);
}

SharedGroup::~SharedGroup() {
  if (generation_ != fork_generation()) return;  // the parent's group goes on
  state_.waiting->end({.how = End::left, .rank = rank()});
  retire({.arena = std::move(state_.arena),
          .memory = std::move(state_.memory),
          .waiting = std::move(state_.waiting),
          .messages = state_.mailbox->take_blocks()});
}

void SharedGroup::check_process() const {
  if (generation_ != fork_generation())
    throw WrongProcess("the group belongs to the process that forked this one");
}

Mailbox& SharedGroup::mailbox() {
  check_process();
  return *state_.mailbox;
}

uint64_t SharedGroup::next_number(const Subject& subject, const Talk* talk) {
  const auto note_bytes = static_cast<int64_t>(note_of(talk).size());
  if (talk != nullptr && note_bytes > std::min(kNoteBytes, talk->row_bytes))
    throw std::invalid_argument("a note of " + std::to_string(note_bytes) + " bytes is too long");
  check_process();
  state_.waiting->check();
  state_.mark = subject.mark;
  return ++number_;
}

// A rank whose call fails on the way cannot go on with the others, and tells them so.
template <class Body>
void SharedGroup::guarded(const Subject& subject, Body&& body) {
  try {
    body();
    return;
  } catch (const PeerLost&) {
    throw;
  } catch (const OtherCall&) {
    if (subject.mark != kTelling) tell_apart(subject);
  } catch (...) {
    state_.waiting->end({.how = End::failed, .rank = rank()});
    throw;
  }
  state_.waiting->end({.how = End::failed, .rank = rank()});
  throw BadHeader("the ranks are in different calls");
}

// Every rank has seen that the marks differ, and comes here.
void SharedGroup::tell_apart(const Subject& subject) {
  std::vector<uint64_t> marks;
  for (int64_t peer = 0; peer < size(); ++peer)
    marks.push_back(state_.waiting->board(peer).header(number_).mark);
  std::string mine = subject.words ? subject.words() : "a call of the group's own";
  mine.resize(std::min<size_t>(mine.size(), kWordsBytes - 1));
  std::vector<char> rows(static_cast<size_t>(size() * kWordsBytes));  // zeros end the words
  gather_notes({.note = std::as_bytes(std::span(mine)),
                .rows = reinterpret_cast<std::byte*>(rows.data()),
                .row_bytes = kWordsBytes},
               {.mark = kTelling});
  size_t other = 1;
  while (other + 1 < marks.size() && marks[other] == marks[0]) ++other;
  const auto words_of = [&](size_t rank) {
    const char* words = rows.data() + rank * static_cast<size_t>(kWordsBytes);
    return std::string(words, strnlen(words, kWordsBytes)) + " on rank " + std::to_string(rank);
  };
  throw Disagreement("ranks called different collectives: " + words_of(0) + ", " + words_of(other));
}

// Meets the others and hears their notes. Returns whether the call goes on.
bool SharedGroup::goes_on(uint64_t number, const Talk* talk) {
  meet(state_, number);
  if (talk == nullptr) return true;
  for (int64_t peer = 0; peer < size(); ++peer) {
    std::span<const std::byte> note = talk->note;
    if (peer != rank()) {
      const Sight sight = sight_of(state_, number, peer);
      note = find_note(sight, hear_header(sight), talk->row_bytes);
    }
    const auto bytes = static_cast<int64_t>(note.size());
    copy_bytes(talk->rows + peer * talk->row_bytes, note.data(), bytes);
    if (talk->lengths != nullptr) talk->lengths[peer] = bytes;
  }
  return !talk->agrees || talk->agrees();
}

void SharedGroup::barrier() {
  const Subject subject{.mark = kBarrier, .words = [] { return std::string("a barrier"); }};
  const uint64_t number = next_number(subject);
  guarded(subject, [&] {
    publish(state_, number, Part{});
    meet(state_, number);
  });
}

bool SharedGroup::run(const Part& part, const Subject& subject, const Talk* talk) {
  const auto heavy = talk == nullptr ? heavy_rank(part, size()) : std::nullopt;
  if (!heavy) return run_one(part, subject, talk);
  run_shared(part, *heavy, subject);
  return true;
}

bool SharedGroup::run(const ContiguousCall& call, const Subject& subject, const Talk* talk) {
  Input own;
  const Path path = path_of(state_, call);
  const bool may_be_heavy = call.combine && call.input_bytes >= kLeastSharedReduction;
  if (may_be_heavy || path == Path::staged) {
    const Part part = part_of(call, rank(), own);
    if (heavy_rank(part, size()) || path == Path::staged) return run(part, subject, talk);
  }
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  guarded(subject, [&] {
    ContiguousExecution execution(state_, number, call, path);
    execution.publish(note_of(talk));
    has_gone_on = goes_on(number, talk);
    if (!has_gone_on || execution.finish()) return;
    const Part part = part_of(call, rank(), own);
    Execution(state_, number, part, path).run();
  });
  return has_gone_on;
}

bool SharedGroup::run(const AllReduce& all_reduce, const Subject& subject, const Talk* talk) {
  if (!is_for_everybody(state_, all_reduce)) {
    if (!run(share_of(all_reduce, rank(), size()), subject, talk)) return false;
    return run(collection_of(all_reduce, rank(), size()), subject);
  }
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  guarded(subject, [&] {
    AllReduceCall call(state_, number, all_reduce);
    call.publish(note_of(talk));
    has_gone_on = goes_on(number, talk);
    if (has_gone_on) call.finish();
  });
  return has_gone_on;
}

void SharedGroup::run(const PartList& parts, const Subject& subject) {
  if (parts.empty()) return;
  if (parts.size() == 1) {
    run(*parts[0], subject);
    return;
  }
  if (static_cast<int64_t>(parts.size()) > kMostParts)
    throw std::invalid_argument("a list of " + std::to_string(parts.size()) + " parts is too long");
  const auto lists = [](const Part* part) { return part->lists_offsets; };
  const auto listed = std::find_if(parts.begin(), parts.end(), lists);
  if (listed != parts.end() && (static_cast<int64_t>((*listed)->pushes.size()) > kMaxListed ||
                                std::any_of(listed + 1, parts.end(), lists)))
    throw std::invalid_argument("a list has more offsets than its header can list");
  const uint64_t number = next_number(subject);
  guarded(subject, [&] {
    const Few<Path> paths = publish(state_, number, parts);
    meet(state_, number);
    Execution(state_, number, parts, paths).run();
  });
}

bool SharedGroup::run_one(const Part& part, const Subject& subject, const Talk* talk) {
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  std::optional<int64_t> heavy;  // known when the ranks have talked
  guarded(subject, [&] {
    const Path path = publish(state_, number, part, note_of(talk));
    has_gone_on = goes_on(number, talk);
    if (!has_gone_on) return;
    if (talk != nullptr) heavy = heavy_rank(part, size());
    if (!heavy) Execution(state_, number, part, path).run();
  });
  if (heavy) run_shared(part, *heavy, subject);
  return has_gone_on;
}

void SharedGroup::run_shared(const Part& part, int64_t heavy, const Subject& subject) {
  const SkewedReduceScatter shared(part, rank(), size(), heavy);
  if (shared.has_rest()) run_one(shared.rest(), subject);
  state_.waiting->check();
  const auto free = [this](std::byte* block) { state_.arena->free(block); };
  std::unique_ptr<std::byte, decltype(free)> scratch(nullptr, free);
  guarded(subject, [&] {
    if (shared.scratch_bytes() > 0) scratch.reset(state_.arena->allocate(shared.scratch_bytes()));
  });
  run_one(shared.share(scratch.get()), subject);
  run_one(shared.collection(scratch.get()), subject);
}

}  // namespace shardway::shm
