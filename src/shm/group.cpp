#include "shm/group.h"

#include <cstring>

#include "shm/copy.h"
#include "shm/execution.h"
#include "shm/process.h"
#include "shm/retired.h"
#include "shm/share.h"

namespace shardway::shm {

Group::Group(std::shared_ptr<Arena> arena, std::unique_ptr<Waiting> waiting, bool can_read_processes)
    : arena_(std::move(arena)), waiting_(std::move(waiting)), generation_(fork_generation()) {
  ways_.can_read_processes = can_read_processes;
}

Group::~Group() {
  if (generation_ != fork_generation()) return;  // the parent's group goes on
  waiting_->end({.how = End::left, .rank = rank()});
  retire(std::move(arena_), std::move(waiting_));
}

uint64_t Group::next_number() {
  if (generation_ != fork_generation())
    throw WrongProcess("the group belongs to the process that forked this one");
  waiting_->check();
  return ++number_;
}

// A rank whose call fails on the way is of no use to the others: they are told.
template <class Body>
void Group::guarded(Body&& body) {
  try {
    body();
  } catch (const PeerLost&) {
    throw;
  } catch (...) {
    waiting_->end({.how = End::failed, .rank = rank()});
    throw;
  }
}

void Group::gather_notes(std::span<const std::byte> mine, std::byte* rows, int64_t row_bytes) {
  const auto own_bytes = static_cast<int64_t>(mine.size());
  if (own_bytes > kNoteBytes || own_bytes > row_bytes)
    throw std::invalid_argument("a note of " + std::to_string(own_bytes) + " bytes is too long");
  const uint64_t number = next_number();
  guarded([&] {
    publish_note(*waiting_, number, mine);
    copy_bytes(rows + rank() * row_bytes, mine.data(), own_bytes);
    meet(*waiting_, number);
    for (int64_t peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const int64_t bytes = hear(*waiting_, number, peer).header.note_bytes;
      if (bytes < 0 || bytes > row_bytes || bytes > kNoteBytes)
        throw BadHeader("rank " + std::to_string(peer) + " sends a note of " + std::to_string(bytes) +
                        " bytes");
      copy_bytes(rows + peer * row_bytes, waiting_->board(peer).payload(number), bytes);
    }
  });
}

void Group::run(const Part& part) {
  if (const auto heavy = heavy_rank(part, size())) return run_shared(part, *heavy);
  run_one(part);
}

void Group::run_one(const Part& part) {
  const uint64_t number = next_number();
  guarded([&] { Execution(*waiting_, *arena_, number, part, ways_).run(); });
}

void Group::run_shared(const Part& part, int64_t heavy) {
  const SharedReduction shared(part, rank(), size(), heavy);
  if (shared.has_rest()) run_one(shared.rest());
  waiting_->check();
  const auto free = [this](std::byte* block) { arena_->free(block); };
  std::unique_ptr<std::byte, decltype(free)> scratch(nullptr, free);
  guarded([&] {
    if (shared.scratch_bytes() > 0) scratch.reset(arena_->allocate(shared.scratch_bytes()));
  });
  run_one(shared.share(scratch.get()));
  run_one(shared.collection(scratch.get()));
}

}  // namespace shardway::shm
