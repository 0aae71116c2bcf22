#include "shm/calls/contiguous.h"

#include <algorithm>
#include <cstring>

#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

bool sends_anything(const ContiguousCall& call, int64_t rank) {
  for (size_t peer = 0; peer < call.sends.size(); ++peer) {
    if (static_cast<int64_t>(peer) != rank && call.sends[peer].bytes > 0) return true;
  }
  return false;
}

TakenRange taken_by_others(const ContiguousCall& call, int64_t rank) {
  TakenRange range{.begin = call.input_bytes, .end = 0};
  for (size_t peer = 0; peer < call.sends.size(); ++peer) {
    const ContiguousCall::Send& send = call.sends[peer];
    if (static_cast<int64_t>(peer) == rank || send.bytes == 0) continue;
    range.begin = std::min(range.begin, send.begin);
    range.end = std::max(range.end, send.begin + send.bytes);
  }
  return range;
}

bool goes_whole_to_all(const ContiguousCall& call, int64_t rank, int64_t bytes) {
  for (size_t peer = 0; peer < call.sends.size(); ++peer) {
    if (static_cast<int64_t>(peer) != rank && call.sends[peer].bytes != bytes) return false;
  }
  return true;
}

// Whether the input can lie in the header's page, which has no room for lists: little is taken of it, and it
// is plain what each peer takes: all, or a part of inputs that have one size.
bool fits_inside(const ContiguousCall& call, int64_t rank) {
  if (call.combine) return taken_by_others(call, rank).bytes() <= kInsideBytes;
  return call.input_bytes <= kInsideBytes && goes_whole_to_all(call, rank, call.input_bytes);
}

}  // namespace

Part part_of(const ContiguousCall& call, int64_t rank, Input& own) {
  const int64_t element = call.element_bytes;
  Part part{.element_bytes = element};
  own = {.data = call.input, .shape = one_dim(call.input_bytes / element), .strides = one_dim(element)};
  part.input = own;
  part.output = call.output;
  part.output_strides = one_dim(element);
  part.combine = call.combine;
  part.is_reduce_scatter = call.combine.has_value();
  for (size_t peer = 0; peer < call.sends.size(); ++peer) {
    const auto p = static_cast<int64_t>(peer);
    const ContiguousCall::Send& send = call.sends[peer];
    const ContiguousCall::Take& take = call.takes[peer];
    part.pushes.push_back(
        {.peer = p, .from = one_dim(send.begin / element), .extent = one_dim(send.bytes / element)});
    part.pulls.push_back({.peer = p,
                          .from = one_dim(take.from == kUnknown ? kUnknown : take.from / element),
                          .to = one_dim(take.to / element),
                          .extent = one_dim(take.bytes / element),
                          .here = p == rank ? &own : nullptr});
  }
  if (!call.combine || call.takes[0].bytes == 0) return part;
  PartLanding landing{.to = one_dim(0), .extent = one_dim(call.takes[0].bytes / element)};
  for (size_t peer = 0; peer < call.takes.size(); ++peer)
    landing.addends.push_back({.pull = static_cast<int64_t>(peer), .from = one_dim(0)});
  part.landings.push_back(std::move(landing));
  return part;
}

Path path_of(const GroupState& state, const ContiguousCall& call) {
  if (!sends_anything(call, state.waiting->rank())) return Path::none;
  if (fits_inside(call, state.waiting->rank())) return Path::inside;
  const int64_t taken = taken_by_others(call, state.waiting->rank()).bytes();
  return direct_path(state, call.input, taken, call.input_bytes).value_or(Path::staged);
}

void await_readers(Waiting& waiting, uint64_t number, const Few<ContiguousCall::Send>& sends) {
  for (size_t peer = 0; peer < sends.size(); ++peer) {
    const auto rank = static_cast<int64_t>(peer);
    if (rank != waiting.rank() && sends[peer].bytes > 0) await_reader(waiting, rank, number);
  }
}

ContiguousExecution::ContiguousExecution(GroupState& state, uint64_t number, const ContiguousCall& call,
                                         Path path)
    : state_(state), waiting_(*state.waiting), number_(number), asked_(call), path_(path) {}

void ContiguousExecution::publish(std::span<const std::byte> note) {
  const TakenRange taken = taken_by_others(asked_, waiting_.rank());
  Payload payload = path_ == Path::packed ? pack(taken, note)
                                          : place_payload(state_, number_, 0, /*is_for_all=*/false, note);
  if (path_ == Path::arena) payload.base = state_.arena->offset_of(asked_.input);
  if (path_ == Path::inside) payload.base = -taken.begin;
  Header header{.path = path_,
                .dims = 1,
                .is_listed = static_cast<uint8_t>(path_ != Path::inside),
                .element_bytes = static_cast<uint32_t>(asked_.element_bytes),
                .base = payload.base,
                .span_bytes = asked_.input_bytes,
                .note = payload.note};
  if (path_ == Path::inside) {
    put_inside(state_, number_, asked_.input + taken.begin, taken.bytes(), header);
  } else {
    list_sends(waiting_.own().lists(number_, 1));
  }
  enter(state_, number_, header);
}

void ContiguousExecution::list_sends(const Lists& lists) const {
  *lists.shape() = asked_.input_bytes / asked_.element_bytes;
  *lists.strides() = asked_.element_bytes;
  for (size_t peer = 0; peer < asked_.sends.size(); ++peer) {
    const ContiguousCall::Send& send = asked_.sends[peer];
    lists.first()[peer] = static_cast<int32_t>(peer);
    lists.listed()[peer] = {.offset_bytes = send.begin, .volume = send.bytes / asked_.element_bytes};
  }
  lists.first()[asked_.sends.size()] = static_cast<int32_t>(asked_.sends.size());
}

// Copies the bytes that others take. The base is where the input's first byte would be.
Payload ContiguousExecution::pack(const TakenRange& taken, std::span<const std::byte> note) {
  const bool is_for_all = !asked_.combine && goes_whole_to_all(asked_, waiting_.rank(), taken.bytes());
  Payload payload = place_payload(state_, number_, taken.bytes(), is_for_all, note);
  const auto copy = state_.streams_payload(payload.base) ? stream_bytes : copy_bytes;
  copy(state_.own_payload(number_, payload.base), asked_.input + taken.begin, taken.bytes());
  payload.base -= taken.begin;
  return payload;
}

// Returns false if a peer's input cannot be read in place or is not as expected: the execution of the part
// then reads it in another way, or throws.
bool ContiguousExecution::find_sources() {
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    const ContiguousCall::Take& take = asked_.takes[static_cast<size_t>(peer)];
    if (peer == waiting_.rank()) {
      sources_.push_back(asked_.input + take.from);
      continue;
    }
    const Sight sight = sight_of(state_, number_, peer);
    const Header header = copied(sight.board.header(number_));
    Run run{.from = take.from, .bytes = take.bytes, .element_bytes = asked_.element_bytes};
    // The ranks of a reduction have inputs of the same size. A rank that sees another size must not write.
    if (asked_.combine) run.input_bytes = asked_.input_bytes;
    const std::byte* source = take.bytes > 0 ? find_run(sight, header, run) : nullptr;
    if (source == nullptr && take.bytes > 0) return false;
    if (source != nullptr && header.path == Path::arena) owners_.push_back(peer);
    sources_.push_back(source);
  }
  return true;
}

bool ContiguousExecution::finish() {
  if (!finish_leg()) return false;
  leave();
  return true;
}

bool ContiguousExecution::finish_leg() {
  if (!find_sources()) return false;
  if (asked_.combine) {
    reduce();
  } else {
    copy();
  }
  waiting_.check_owners(owners_);
  return true;
}

// This rank's own bytes come first: a peer that reads them takes the lines away.
void ContiguousExecution::copy() const {
  const auto size = sources_.size();
  for (size_t step = 0; step < size; ++step) {
    const size_t peer = (static_cast<size_t>(waiting_.rank()) + step) % size;
    const ContiguousCall::Take& take = asked_.takes[peer];
    copy_bytes(asked_.output + take.to, sources_[peer], take.bytes);
  }
}

void ContiguousExecution::reduce() const {
  const int64_t count = asked_.takes[0].bytes / asked_.element_bytes;
  if (count > 0) shm::reduce(asked_.output, {sources_.data(), sources_.size()}, count, *asked_.combine);
}

void ContiguousExecution::leave() {
  hand_back_payload(state_, number_);
  if (!owners_.empty()) say_read(waiting_, number_);
  if (path_ == Path::arena) await_readers(waiting_, number_, asked_.sends);
}

}  // namespace shardway::shm
