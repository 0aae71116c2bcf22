#include "shm/calls/flat.h"

#include <algorithm>
#include <cstring>

#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

bool sends_anything(const Flat& flat, int64_t rank) {
  for (size_t peer = 0; peer < flat.sends.size(); ++peer) {
    if (static_cast<int64_t>(peer) != rank && flat.sends[peer].bytes > 0) return true;
  }
  return false;
}

Path path_for(const Desk& desk, const Flat& flat) {
  if (!sends_anything(flat, desk.waiting->rank())) return Path::none;
  return direct_path(desk, flat.input, flat.input_bytes, flat.input_bytes).value_or(Path::staged);
}

}  // namespace

Part part_of(const Flat& flat, int64_t rank, Input& own) {
  const int64_t element = flat.element_bytes;
  Part part{.element_bytes = element};
  own = {.data = flat.input, .shape = one_dim(flat.input_bytes / element), .strides = one_dim(element)};
  part.input = own;
  part.output = flat.output;
  part.output_strides = one_dim(element);
  part.combine = flat.combine;
  part.is_reduce_scatter = flat.combine.has_value();
  for (size_t peer = 0; peer < flat.sends.size(); ++peer) {
    const auto p = static_cast<int64_t>(peer);
    const Flat::Send& send = flat.sends[peer];
    const Flat::Take& take = flat.takes[peer];
    part.pushes.push_back(
        {.peer = p, .from = one_dim(send.begin / element), .extent = one_dim(send.bytes / element)});
    part.pulls.push_back({.peer = p,
                          .from = one_dim(take.from == kUnknown ? kUnknown : take.from / element),
                          .to = one_dim(take.to / element),
                          .extent = one_dim(take.bytes / element),
                          .here = p == rank ? &own : nullptr});
  }
  if (!flat.combine || flat.takes[0].bytes == 0) return part;
  PartLanding landing{.to = one_dim(0), .extent = one_dim(flat.takes[0].bytes / element)};
  for (size_t peer = 0; peer < flat.takes.size(); ++peer)
    landing.addends.push_back({.pull = static_cast<int64_t>(peer), .from = one_dim(0)});
  part.landings.push_back(std::move(landing));
  return part;
}

bool is_direct(const Desk& desk, const Flat& flat) { return path_for(desk, flat) != Path::staged; }

FlatCall::FlatCall(Desk& desk, uint64_t number, const Flat& flat)
    : desk_(desk), waiting_(*desk.waiting), number_(number), flat_(flat) {}

Path FlatCall::publish(std::span<const std::byte> note) {
  const Board& board = waiting_.own();
  path_ = path_for(desk_, flat_);
  Payload payload = path_ == Path::packed ? pack(note) : place_payload(desk_, number_, 0, note);
  if (path_ == Path::arena) payload.base = desk_.arena->offset_of(flat_.input);
  // The header comes last, at once: the peers wait at its line, and each look takes it away.
  Header& header = board.header(number_);
  header.path = path_;
  header.dims = 1;
  header.for_all = 0;
  header.is_listed = 1;
  header.element_bytes = static_cast<uint32_t>(flat_.element_bytes);
  header.base = payload.base;
  header.span_bytes = flat_.input_bytes;
  header.note_bytes = payload.note_bytes;
  header.note_base = payload.note_base;
  const Lists lists = board.lists(number_, 1);
  *lists.shape() = flat_.input_bytes / flat_.element_bytes;
  *lists.strides() = flat_.element_bytes;
  for (size_t peer = 0; peer < flat_.sends.size(); ++peer) {
    const Flat::Send& send = flat_.sends[peer];
    lists.first()[peer] = static_cast<int32_t>(peer);
    lists.listed()[peer] = {.offset_bytes = send.begin, .volume = send.bytes / flat_.element_bytes};
  }
  lists.first()[flat_.sends.size()] = static_cast<int32_t>(flat_.sends.size());
  enter(desk_, number_);
  return path_;
}

// Copies what others take, from the first byte of it to the last. The base is where the input's first byte
// would be.
Payload FlatCall::pack(std::span<const std::byte> note) {
  int64_t begin = flat_.input_bytes;
  int64_t end = 0;
  for (size_t peer = 0; peer < flat_.sends.size(); ++peer) {
    const Flat::Send& send = flat_.sends[peer];
    if (static_cast<int64_t>(peer) == waiting_.rank() || send.bytes == 0) continue;
    begin = std::min(begin, send.begin);
    end = std::max(end, send.begin + send.bytes);
  }
  const int64_t bytes = end - begin;
  Payload payload = place_payload(desk_, number_, bytes, note);
  copy_bytes(desk_.own_payload(number_, payload.base), flat_.input + begin, bytes);
  payload.base -= begin;
  return payload;
}

// False where a peer's input cannot be read in place, or is not what it should be: the part's execution
// tells.
bool FlatCall::find_sources() {
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    const Flat::Take& take = flat_.takes[static_cast<size_t>(peer)];
    if (peer == waiting_.rank()) {
      sources_.push_back(flat_.input + take.from);
      continue;
    }
    const Sight sight = sight_of(desk_, number_, peer);
    const Header header = copied(sight.board.header(number_));
    Run run{.from = take.from, .bytes = take.bytes, .element_bytes = flat_.element_bytes};
    // The ranks of a reduction have inputs alike: who sees one that is not must not write.
    if (flat_.combine) run.input_bytes = flat_.input_bytes;
    const std::byte* source = take.bytes > 0 ? find_run(sight, header, run) : nullptr;
    if (source == nullptr && take.bytes > 0) return false;
    reads_in_place_ |= source != nullptr && header.path == Path::arena;
    sources_.push_back(source);
  }
  return true;
}

bool FlatCall::finish() {
  if (!find_sources()) return false;
  if (flat_.combine) {
    reduce();
  } else {
    copy();
  }
  leave();
  return true;
}

// One's own first: a peer that reads it takes the lines away.
void FlatCall::copy() const {
  const auto size = sources_.size();
  for (size_t step = 0; step < size; ++step) {
    const size_t peer = (static_cast<size_t>(waiting_.rank()) + step) % size;
    const Flat::Take& take = flat_.takes[peer];
    copy_bytes(flat_.output + take.to, sources_[peer], take.bytes);
  }
}

void FlatCall::reduce() const {
  const int64_t count = flat_.takes[0].bytes / flat_.element_bytes;
  if (count > 0) shm::reduce(flat_.output, {sources_.data(), sources_.size()}, count, *flat_.combine);
}

void FlatCall::leave() {
  hand_back_payload(desk_, number_);
  if (reads_in_place_) say_read(waiting_, number_);
  if (path_ != Path::arena) return;
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    if (peer != waiting_.rank() && flat_.sends[static_cast<size_t>(peer)].bytes > 0)
      await_reader(waiting_, peer, number_);
  }
}

}  // namespace shardway::shm
