#include "shm/group/group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "record/part_names.h"
#include "record/recorder.h"
#include "shm/board/long_wait.h"
#include "shm/board/retired.h"
#include "shm/calls/all_reduce.h"
#include "shm/calls/execution.h"
#include "shm/calls/header.h"
#include "shm/calls/legs.h"
#include "shm/calls/skewed_reduce_scatter.h"
#include "shm/group/loss_report.h"
#include "shm/kernels/copy.h"
#include "shm/memory/process.h"
#include "terms/comparison.h"

namespace shardway::shm {
namespace {

constexpr uint64_t kTelling = mark_of("telling");
constexpr uint64_t kBarrier = mark_of("barrier");
constexpr int64_t kWordsBytes = 512;

std::span<const std::byte> note_of(const Talk* talk) {
  return talk == nullptr ? std::span<const std::byte>() : talk->note;
}

// What the record says of a call: the bytes that the rank gives, or, if it gives none, those that it takes.
int64_t bytes_of_call(const Part& part) {
  int64_t elements = part.input.data == nullptr ? 0 : volume(part.input.shape);
  if (elements > 0) return elements * part.element_bytes;
  for (const Pull& pull : part.pulls) elements += volume(pull.extent);
  return elements * part.element_bytes;
}

int64_t bytes_of_call(const PartList& parts) {
  int64_t bytes = 0;
  for (const Part* part : parts) bytes += bytes_of_call(*part);
  return bytes;
}

int64_t bytes_of_call(const ContiguousCall& call) {
  int64_t bytes = call.input_bytes;
  if (bytes > 0) return bytes;
  for (const ContiguousCall::Take& take : call.takes) bytes += take.bytes;
  return bytes;
}

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<Arena> arena, std::shared_ptr<GroupMemory> memory,
                         std::unique_ptr<Waiting> waiting, const Tuning& tuning)
    : state_{.arena = std::move(arena),
             .memory = std::move(memory),
             .waiting = std::move(waiting),
             .mailbox = nullptr,
             .tuning = tuning},
      generation_(fork_generation()),
      id_(mark_of(state_.memory->nonce()[0], state_.memory->nonce()[1])) {
  state_.mailbox = std::make_unique<Mailbox>(state_.arena, *state_.waiting);
  // So a rank that never calls is in the records too.
  record::OpenCall({.op = "join", .group = id_, .rank = rank(), .size = size()}).done();
}

SharedGroup::~SharedGroup() {
  if (generation_ != fork_generation()) return;  // the parent's group goes on
  record::forget_part(id_);
  state_.waiting->end({.how = End::left, .rank = rank()});
  retire({.arena = std::move(state_.arena),
          .memory = std::move(state_.memory),
          .waiting = std::move(state_.waiting),
          .messages = state_.mailbox->take_blocks()});
}

bool SharedGroup::is_over_for(int64_t peer) const {
  const End how = state_.waiting->ended(peer).how;
  return (how != End::none && how != End::left) || has_ended(state_.waiting->peer(peer).process());
}

std::span<std::byte> SharedGroup::stream_words() const {
  return state_.memory->stream_words(state_.waiting->own().plan());
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
  try {
    state_.waiting->check();
  } catch (const PeerLost& lost) {
    report(lost);
    throw;
  }
  state_.mark = subject.mark;
  return ++number_;
}

// Once: every later call throws the same.
void SharedGroup::report(const PeerLost& lost) {
  if (!std::exchange(has_reported_, true) && is_loss(*state_.waiting))
    report_loss(*state_.waiting, id_, lost);
}

// `say` puts the header up and waits for nobody. Then the call is in the record, until it returns or throws:
// the peers need the header first, and the record is written while they fetch it.
template <class Say, class Rest>
void SharedGroup::guarded(const Subject& subject, int64_t bytes, Say&& say, Rest&& rest) {
  record::BegunCall call(
      {.op = subject.name, .number = number_, .group = id_, .rank = rank(), .size = size(), .bytes = bytes});
  const auto tell = [&](std::chrono::nanoseconds waited) {
    report_wait(*state_.waiting, id_, {.op = subject.name, .number = number_, .waited = waited});
  };
  const WatchedCall watched(tell);
  attempt(subject, [&] {
    say();
    call.open();
    rest();
  });
  call.set_waited(watched.waited_ns());
  call.done();
}

// A rank whose call fails on the way cannot go on with the others, and tells them so.
template <class Body>
void SharedGroup::attempt(const Subject& subject, Body&& body) {
  try {
    body();
    return;
  } catch (const PeerLost& lost) {
    report(lost);
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
               {.mark = kTelling, .name = "tell_apart"});
  size_t other = 1;
  while (other + 1 < marks.size() && marks[other] == marks[0]) ++other;
  const auto part = record::part_names_of(id_);
  const auto words_of = [&](size_t rank) -> wire::RankWords {
    const char* words = rows.data() + rank * static_cast<size_t>(kWordsBytes);
    return {.words = std::string(words, strnlen(words, kWordsBytes)),
            .rank = part ? part->numbers[rank] : static_cast<int64_t>(rank)};
  };
  throw Disagreement(wire::different_calls(words_of(0), words_of(other)));
}

// Meets the others and hears their notes. Returns whether the call goes on.
bool SharedGroup::goes_on(uint64_t number, const Talk* talk) {
  meet(state_, number);
  if (talk == nullptr) return true;
  const NotePlace own = state_.waiting->own().header(number).note;
  for (int64_t peer = 0; peer < size(); ++peer) {
    std::span<const std::byte> note = talk->note;
    if (peer != rank()) {
      const Sight sight = sight_of(state_, number, peer);
      const Header header = hear_header(sight);
      if (!header.note.is_alike(own)) note = find_note(sight, header, talk->row_bytes);
    }
    const auto bytes = static_cast<int64_t>(note.size());
    copy_bytes(talk->rows + peer * talk->row_bytes, note.data(), bytes);
    if (talk->lengths != nullptr) talk->lengths[peer] = bytes;
  }
  return !talk->agrees || talk->agrees();
}

void SharedGroup::barrier() {
  const Subject subject{
      .mark = kBarrier, .name = "barrier", .words = [] { return std::string("a barrier"); }};
  const uint64_t number = next_number(subject);
  guarded(
      subject, 0, [&] { publish(state_, number, Part{}); }, [&] { meet(state_, number); });
}

bool SharedGroup::run(const Part& part, const Subject& subject, const Talk* talk) {
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  Path path = Path::none;
  const auto say = [&] { path = publish(state_, number, part, note_of(talk)); };
  guarded(subject, bytes_of_call(part), say, [&] {
    has_gone_on = goes_on(number, talk);
    if (!has_gone_on) return;
    if (const auto heavy = heavy_rank(part, size())) return run_skewed(number, part, path, *heavy);
    Execution(state_, number, part, path).run();
  });
  return has_gone_on;
}

bool SharedGroup::run(const ContiguousCall& call, const Subject& subject, const Talk* talk) {
  Input own;
  const Path path = path_of(state_, call);
  const bool may_be_heavy = call.combine && call.input_bytes >= kLeastSharedReduction;
  if (may_be_heavy || path == Path::staged) {
    Part part = part_of(call, rank(), own);
    if (heavy_rank(part, size()) || path == Path::staged) {
      if (talk == nullptr || !talk->agrees) return run(part, subject, talk);
      Talk with_part = *talk;
      with_part.agrees = [&] {
        const bool agrees = talk->agrees();
        if (agrees) part = part_of(call, rank(), own);  // the talk may have set what is taken
        return agrees;
      };
      return run(part, subject, &with_part);
    }
  }
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  ContiguousExecution execution(state_, number, call, path);
  const auto say = [&] { execution.publish(note_of(talk)); };
  guarded(subject, bytes_of_call(call), say, [&] {
    has_gone_on = goes_on(number, talk);
    if (!has_gone_on || execution.finish()) return;
    const Part part = part_of(call, rank(), own);
    Execution(state_, number, part, path).run();
  });
  return has_gone_on;
}

bool SharedGroup::run(const AllReduce& all_reduce, const Subject& subject, const Talk* talk) {
  if (!is_for_everybody(state_, all_reduce)) return run_in_shares(all_reduce, subject, talk);
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  AllReduceCall call(state_, number, all_reduce);
  const auto say = [&] { call.publish(note_of(talk)); };
  guarded(subject, all_reduce.bytes, say, [&] {
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
  Few<Path> paths;
  const auto say = [&] { paths = publish(state_, number, parts); };
  guarded(subject, bytes_of_call(parts), say, [&] {
    meet(state_, number);
    Execution(state_, number, parts, paths).run();
  });
}

bool SharedGroup::run_in_shares(const AllReduce& all_reduce, const Subject& subject, const Talk* talk) {
  const ContiguousCall share = share_of(all_reduce, rank(), size());
  const uint64_t number = next_number(subject, talk);
  bool has_gone_on = false;
  ContiguousExecution execution(state_, number, share, path_of(state_, share));
  const auto say = [&] { execution.publish(note_of(talk)); };
  guarded(subject, all_reduce.bytes, say, [&] {
    has_gone_on = goes_on(number, talk);
    if (has_gone_on) run_legs(state_, number, execution, collection_of(all_reduce, rank(), size()));
  });
  return has_gone_on;
}

// The others' shares lie in their arenas, unless these are full.
void SharedGroup::run_skewed(uint64_t number, const Part& part, Path path, int64_t heavy) {
  const SkewedReduceScatter skewed(part, rank(), size(), heavy);
  const int64_t bytes = skewed.scratch_bytes();
  const auto free = [this](std::byte* block) { state_.arena->free(block); };
  std::unique_ptr<std::byte, decltype(free)> shared(nullptr, free);
  std::vector<std::byte> own;
  try {
    if (bytes > 0) shared.reset(state_.arena->allocate(bytes));
  } catch (const ArenaFull&) {
    own.resize(static_cast<size_t>(bytes));
  }
  std::byte* scratch = own.empty() ? shared.get() : own.data();
  const Part rest = skewed.rest();
  const Part share = skewed.share(scratch);
  PartList first;
  if (skewed.has_rest()) first.push_back(&rest);
  first.push_back(&share);
  run_legs(state_, number, first, path, skewed.collection(scratch));
}

}  // namespace shardway::shm
