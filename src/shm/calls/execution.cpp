#include "shm/calls/execution.h"

#include <algorithm>
#include <utility>

#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

Place place_of(const Part& part, const Pull& pull) {
  return {.data = part.output + offset_bytes(pull.to, part.output_strides), .strides = part.output_strides};
}

Source source_here(const Pull& pull) {
  const Input& input = *pull.here;
  return {.data = input.data + offset_bytes(pull.from, input.strides), .strides = input.strides};
}

// Those of the pulls whose source is known; one's own first, for a peer that reads it takes the lines away.
void copy_pulls(const Part& part, const Few<Source>& sources, int64_t rank) {
  size_t own = 0;
  while (own < part.pulls.size() && part.pulls[own].peer < rank) ++own;
  for (size_t step = 0; step < part.pulls.size(); ++step) {
    const size_t i = (own + step) % part.pulls.size();
    const Source& source = sources[i];
    if (source.data == nullptr) continue;
    const Place place = place_of(part, part.pulls[i]);
    copy_box(place.data, place.strides, source.data, source.strides, part.pulls[i].extent,
             part.element_bytes);
  }
}

void reduce_landings(const Part& part, const Few<Source>& sources) {
  Few<StridedAddend> addends;
  for (const PartLanding& landing : part.landings) {
    addends.clear();
    for (const PartAddend& addend : landing.addends) {
      const Source& source = sources[static_cast<size_t>(addend.pull)];
      addends.push_back(
          {.data = source.data + offset_bytes(addend.from, source.strides), .strides = source.strides});
    }
    reduce_box(part.output + offset_bytes(landing.to, part.output_strides), part.output_strides,
               {addends.data(), addends.size()}, landing.extent, *part.combine);
  }
}

}  // namespace

void run_alone(const Part& part) {
  Few<Source> sources;
  for (const Pull& pull : part.pulls)
    sources.push_back(volume(pull.extent) > 0 ? source_here(pull) : Source{});
  if (part.combine) {
    reduce_landings(part, sources);
  } else {
    copy_pulls(part, sources, 0);
  }
}

Execution::Execution(Desk& desk, uint64_t number, const Part& part)
    : desk_(desk), waiting_(*desk.waiting), number_(number), part_(part) {}

void Execution::run() {
  const Path path = publish(desk_, number_, part_);
  meet(waiting_, number_);
  finish_published(path);
}

void Execution::finish_published(Path path) {
  path_ = path;
  hear_everybody();
  if (desk_.tuning.swaps) swap_.emplace(waiting_, desk_.swapped);
  open_outgoing();
  open_incoming();
  if (swap_) agree_on_slots();
  if (!outgoing_.empty() || !incoming_.empty()) {
    open_local();
    stream();
  } else if (!part_.combine) {
    copy_pulls(part_, sources_, waiting_.rank());
  }
  if (part_.combine && !(in_step_ && !incoming_.empty())) land_aside();
  finish();
}

void Execution::hear_everybody() {
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    const bool is_own = peer == waiting_.rank();
    const Said said = is_own ? Said{} : hear(sight_of(desk_, number_, peer));
    if (part_.is_reduce_scatter && !is_own) check_shape(said, peer, part_.input.shape);
    said_.push_back(said);
  }
  int64_t index = 0;
  for (size_t i = 0; i < part_.pulls.size(); ++i) {
    const Pull& pull = part_.pulls[i];
    index = i > 0 && part_.pulls[i - 1].peer == pull.peer ? index + 1 : 0;
    if (volume(pull.extent) == 0) {
      sources_.push_back({});
    } else if (pull.here != nullptr) {
      sources_.push_back(source_here(pull));
    } else {
      sources_.push_back(locate(sight_of(desk_, number_, pull.peer), said_[static_cast<size_t>(pull.peer)],
                                pull, index, part_.element_bytes));
    }
  }
}

// Every addend is one whole pull, and each peer's ring brings one: then pieces of the same number meet.
bool Execution::is_in_step() const {
  if (!part_.combine || part_.landings.size() != 1) return false;
  const PartLanding& landing = part_.landings.front();
  int64_t last_peer = -1;
  for (const PartAddend& addend : landing.addends) {
    const auto pull = static_cast<size_t>(addend.pull);
    const Pull& whole = part_.pulls[pull];
    if (!(whole.extent == landing.extent)) return false;
    if (awaits(pull) && std::exchange(last_peer, whole.peer) == whole.peer) return false;
  }
  return true;
}

void Execution::open_outgoing() {
  if (path_ != Path::staged) return;
  const bool for_all = is_for_all(part_, waiting_.rank(), waiting_.size());
  std::vector<const Push*> same_peer;
  for (size_t i = 0; i < part_.pushes.size(); ++i) {
    const Push& push = part_.pushes[i];
    if (push.peer == waiting_.rank()) continue;
    same_peer.push_back(&push);
    const bool is_last = i + 1 == part_.pushes.size() || part_.pushes[i + 1].peer != push.peer;
    if (!is_last) continue;
    outgoing_.emplace_back(waiting_, part_, std::exchange(same_peer, {}), for_all, swap_);
    if (for_all) break;
  }
}

void Execution::open_incoming() {
  for (const Pull& pull : part_.pulls) whole_bytes_ += volume(pull.extent) * part_.element_bytes;
  in_step_ = is_in_step();
  for (size_t i = 0; i < part_.pulls.size();) {
    const int64_t peer = part_.pulls[i].peer;
    std::vector<FixedDims> extents;
    std::vector<Place> places;
    for (; i < part_.pulls.size() && part_.pulls[i].peer == peer; ++i) {
      const Pull& pull = part_.pulls[i];
      if (!awaits(i)) continue;
      extents.push_back(pull.extent);
      places.push_back(place_of(part_, pull));
      if (!part_.combine || in_step_) continue;
      aside_.resize(part_.pulls.size());
      aside_[i].resize(static_cast<size_t>(volume(pull.extent) * part_.element_bytes));
      places.back() = {.data = aside_[i].data(), .strides = packed_strides(pull.extent, part_.element_bytes)};
    }
    if (extents.empty()) continue;
    const bool for_all = said_[static_cast<size_t>(peer)].header.for_all != 0;
    incoming_.emplace_back(waiting_, peer, for_all, std::move(extents), std::move(places),
                           part_.element_bytes, whole_bytes_, desk_.tuning.hands_back, swap_);
  }
}

// Both ranks count alike: what one puts the other takes.
void Execution::agree_on_slots() {
  const int64_t in = incoming_.empty() ? 0 : incoming_.front().pieces();
  const int64_t out = outgoing_.empty() ? 0 : outgoing_.front().pieces();
  if (out > 0) outgoing_.front().expect(in);
  if (in > 0 && out > 0) incoming_.front().answer_with(out, outgoing_.front().piece_bytes());
  desk_.swapped += static_cast<uint64_t>(std::max(in, out));
}

// What needs no ring is copied a piece at a time between the others: peers need not wait for it, and a piece
// that was just put into a slot is still in the cache.
void Execution::open_local() {
  std::vector<FixedDims> extents;
  const std::optional<size_t> goes_out = pull_of_what_goes_out();
  if (goes_out) outgoing_.front().put_also_at(place_of(part_, part_.pulls[*goes_out]));
  for (size_t i = 0; i < part_.pulls.size() && !part_.combine; ++i) {
    if (sources_[i].data == nullptr || i == goes_out) continue;
    local_.push_back(i);
    extents.push_back(part_.pulls[i].extent);
  }
  local_cursor_.emplace(std::move(extents), part_.element_bytes, most_piece_bytes(waiting_, swap_));
}

// The pull of the very box that this rank puts into its only ring. Outputs that are written past the cache
// are left to the copies of pieces.
std::optional<size_t> Execution::pull_of_what_goes_out() const {
  if (part_.combine || outgoing_.size() != 1 || whole_bytes_ >= kStreamFromBytes) return std::nullopt;
  const Push* push = outgoing_.front().only_push();
  for (size_t i = 0; i < part_.pulls.size() && push != nullptr; ++i) {
    const Pull& pull = part_.pulls[i];
    const bool is_own = pull.peer == waiting_.rank() && volume(pull.extent) > 0;
    if (is_own && pull.from == push->from && pull.extent == push->extent) return i;
  }
  return std::nullopt;
}

bool Execution::copy_local_piece() {
  if (local_cursor_->is_done()) return false;
  const size_t pull = local_[local_cursor_->box()];
  const Piece piece = local_cursor_->piece();
  const Source& source = sources_[pull];
  const Place place = place_of(part_, part_.pulls[pull]);
  copy_box(at(place, piece.offset), place.strides, source.data + offset_bytes(piece.offset, source.strides),
           source.strides, piece.extent, part_.element_bytes, whole_bytes_);
  local_cursor_->advance();
  return true;
}

// What came aside is combined with what lies where it can be read.
void Execution::land_aside() {
  for (size_t i = 0; i < aside_.size(); ++i) {
    if (!aside_[i].empty())
      sources_[i] = {.data = aside_[i].data(),
                     .strides = packed_strides(part_.pulls[i].extent, part_.element_bytes)};
  }
  reduce_landings(part_, sources_);
}

void Execution::stream() {
  while (!is_streamed()) {
    if (step()) continue;
    waiting_.until_any([&] { return blockers(); }, [&] { return can_step(); });
  }
}

bool Execution::is_streamed() const {
  return local_cursor_->is_done() &&
         std::all_of(outgoing_.begin(), outgoing_.end(), [](const Outgoing& o) { return o.is_done(); }) &&
         std::all_of(incoming_.begin(), incoming_.end(), [](const Incoming& i) { return i.is_done(); });
}

bool Execution::can_step() const {
  for (const Outgoing& out : outgoing_) {
    if (!out.is_done() && out.has_room()) return true;
  }
  const auto comes = [](const Incoming& in) { return !in.is_done() && in.is_available(); };
  if (part_.combine && in_step_)
    return !incoming_.empty() && std::all_of(incoming_.begin(), incoming_.end(), comes);
  return std::any_of(incoming_.begin(), incoming_.end(), comes);
}

// All peers whose turn it is: were one of them dead, two others might wait for each other over it.
std::vector<int64_t> Execution::blockers() const {
  std::vector<int64_t> peers;
  for (const Incoming& in : incoming_) {
    if (!in.is_done() && !in.is_available()) peers.push_back(in.peer());
  }
  for (const Outgoing& out : outgoing_) {
    if (!out.is_done()) out.add_blockers(peers);
  }
  if (peers.empty()) peers.push_back((waiting_.rank() + 1) % waiting_.size());  // it came just now
  return peers;
}

// One piece out for everybody and one piece in from everybody, as far as there are; whether there was any.
bool Execution::step() {
  bool moved = false;
  for (Outgoing& out : outgoing_) {
    if (out.is_done() || !out.has_room()) continue;
    out.put();
    moved = true;
  }
  moved |= copy_local_piece();
  if (part_.combine && in_step_) {
    const auto comes = [](const Incoming& in) { return !in.is_done() && in.is_available(); };
    if (incoming_.empty() || !std::all_of(incoming_.begin(), incoming_.end(), comes)) return moved;
    reduce_piece();
    return true;
  }
  for (Incoming& in : incoming_) {
    if (in.is_done() || !in.is_available()) continue;
    in.take();
    moved = true;
  }
  return moved;
}

void Execution::reduce_piece() {
  const PartLanding& landing = part_.landings.front();
  const Piece piece = incoming_.front().piece();
  const FixedDims packed = packed_strides(piece.extent, part_.element_bytes);
  Few<StridedAddend> addends;
  size_t next = 0;
  for (const PartAddend& addend : landing.addends) {
    const auto pull = static_cast<size_t>(addend.pull);
    const Source& source = sources_[pull];
    if (awaits(pull)) {
      addends.push_back({.data = incoming_[next++].slot(), .strides = packed});
    } else {
      addends.push_back(
          {.data = source.data + offset_bytes(piece.offset, source.strides), .strides = source.strides});
    }
  }
  const Place place{.data = part_.output + offset_bytes(landing.to, part_.output_strides),
                    .strides = part_.output_strides};
  reduce_box(at(place, piece.offset), place.strides, {addends.data(), addends.size()}, piece.extent,
             *part_.combine, volume(landing.extent) * part_.element_bytes);
  for (Incoming& in : incoming_) in.done();
}

void Execution::finish() {
  hand_back_payload(desk_, number_);
  bool reads_directly = false;
  for (const Pull& pull : part_.pulls)
    reads_directly |= pull.here == nullptr && volume(pull.extent) > 0 &&
                      said_[static_cast<size_t>(pull.peer)].header.path == Path::arena;
  if (reads_directly) say_read(waiting_, number_);
  if (path_ != Path::arena) return;
  for (const Push& push : part_.pushes) {
    if (push.peer != waiting_.rank() && volume(push.extent) > 0) await_reader(waiting_, push.peer, number_);
  }
}

}  // namespace shardway::shm
