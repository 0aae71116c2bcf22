#include "shm/calls/legs.h"

#include <optional>

#include "shm/calls/execution.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

Few<Said> hear_inputs(const GroupState& state, uint64_t number) {
  const Waiting& waiting = *state.waiting;
  Few<Said> said;
  for (int64_t peer = 0; peer < waiting.size(); ++peer) {
    Said& input = said.push_back(peer == waiting.rank() ? Said{} : hear(sight_of(state, number, peer)));
    input.header.is_listed = 0;  // what the ranks pull is not what the header lists
    input.header.for_all = 0;
  }
  return said;
}

// Tells the peers where this rank's share lies. Returns the path by which they read it.
Path say_share(GroupState& state, uint64_t number, const std::byte* share, int64_t bytes) {
  Combined combined;
  if (bytes > 0 && state.arena->contains(share, bytes)) {
    combined = {.path = Path::arena, .base = state.arena->offset_of(share)};
  } else if (bytes > 0 && bytes <= state.tuning.inline_bytes) {
    combined = {.path = Path::packed,
                .base = place_payload(state, number, bytes, /*is_for_all=*/true, {}).base};
    copy_bytes(state.own_payload(number, combined.base), share, bytes);
  } else if (bytes > 0) {
    combined.path = Path::staged;
  }
  say_combined(*state.waiting, number, combined);
  return combined.path;
}

// What a peer's header would say of its share. Waits until the share is there.
Header hear_share(Waiting& waiting, uint64_t number, int64_t peer, int64_t bytes) {
  const Combined combined = await_combined(waiting, peer, number);
  Header header{};
  header.path = combined.path;
  header.base = combined.base;
  header.span_bytes = bytes;
  return header;
}

Few<Said> hear_shares(const GroupState& state, uint64_t number, const Part& second) {
  Waiting& waiting = *state.waiting;
  Few<Said> said;
  for (int64_t peer = 0; peer < waiting.size(); ++peer) said.push_back({});
  for (const Pull& pull : second.pulls) {
    const int64_t bytes = volume(pull.extent) * second.element_bytes;
    if (pull.peer == waiting.rank() || bytes == 0) continue;
    Said& share = said[static_cast<size_t>(pull.peer)];
    share.header = hear_share(waiting, number, pull.peer, bytes);
    share.header.element_bytes = static_cast<uint32_t>(second.element_bytes);
    // If this rank's share goes to all, so do the others'.
    share.header.for_all = is_for_all(second, waiting.rank(), waiting.size()) ? 1 : 0;
    share.shape = pull.extent;
    share.strides = packed_strides(pull.extent, second.element_bytes);
  }
  return said;
}

// Where the peers' shares lie, by rank, and whose lie in their arenas.
struct FoundShares {
  Few<const std::byte*> data = {};
  Few<int64_t> owners = {};
};

// Returns nothing if one of the shares comes through a ring.
std::optional<FoundShares> find_shares(const GroupState& state, uint64_t number,
                                       const ContiguousCall& second) {
  FoundShares shares;
  bool are_here = true;
  for (int64_t peer = 0; peer < state.waiting->size(); ++peer) {
    const int64_t bytes = second.takes[static_cast<size_t>(peer)].bytes;
    const std::byte* share = nullptr;
    if (bytes > 0) {
      const Header header = hear_share(*state.waiting, number, peer, bytes);
      share = find_input(sight_of(state, number, peer), header);
      are_here &= share != nullptr;
      if (header.path == Path::arena) shares.owners.push_back(peer);
    }
    shares.data.push_back(share);
  }
  return are_here ? std::optional(shares) : std::nullopt;
}

void collect(GroupState& state, uint64_t number, const ContiguousCall& second, Path share_path) {
  const int64_t rank = state.waiting->rank();
  const int64_t size = state.waiting->size();
  const auto shares = find_shares(state, number, second);
  if (!shares || share_path == Path::staged) {
    Input own;
    const Part part = part_of(second, rank, own);
    Execution(state, number, part, share_path).run_leg(hear_shares(state, number, part));
    return;
  }
  for (int64_t step = 1; step < size; ++step) {
    const auto peer = static_cast<size_t>((rank + step) % size);
    const ContiguousCall::Take& take = second.takes[peer];
    copy_bytes(second.output + take.to, shares->data[peer], take.bytes);
  }
  state.waiting->check_owners(shares->owners);
}

}  // namespace

void run_legs(GroupState& state, uint64_t number, const PartList& first, Path path, const Part& second) {
  Waiting& waiting = *state.waiting;
  Few<Path> paths;
  for (size_t part = 0; part < first.size(); ++part) paths.push_back(path);
  Execution(state, number, first, paths).run_leg(hear_inputs(state, number));

  const Input& share = second.input;
  const Path share_path = say_share(state, number, share.data, volume(share.shape) * second.element_bytes);
  Execution(state, number, second, share_path).run_leg(hear_shares(state, number, second));

  say_read(waiting, number);
  for (const Part* part : first) {
    if (path == Path::arena) await_readers(waiting, number, part->pushes);
  }
  if (share_path == Path::arena) await_readers(waiting, number, second.pushes);
}

void run_legs(GroupState& state, uint64_t number, ContiguousExecution& first, const ContiguousCall& second) {
  Waiting& waiting = *state.waiting;
  if (first.path() == Path::staged || !first.finish_leg()) {
    Input own;
    const Part part = part_of(first.call(), waiting.rank(), own);
    Execution(state, number, part, first.path()).run_leg(hear_inputs(state, number));
  }

  const Path share_path = say_share(state, number, second.input, second.input_bytes);
  collect(state, number, second, share_path);

  say_read(waiting, number);
  if (first.path() == Path::arena) await_readers(waiting, number, first.call().sends);
  if (share_path == Path::arena) await_readers(waiting, number, second.sends);
}

}  // namespace shardway::shm
