#include "shm/calls/execution.h"

#include <algorithm>
#include <utility>

#include "shm/kernels/copy.h"

namespace shardway::shm {
namespace {

Place place_in(const Part& part, const Pull& pull) {
  return {.data = part.output + offset_bytes(pull.to, part.output_strides), .strides = part.output_strides};
}

Source source_here(const Pull& pull) {
  const Input& input = *pull.here;
  return {.data = input.data + offset_bytes(pull.from, input.strides), .strides = input.strides};
}

// Copies the pulls whose source is known. This rank's own come first: a peer that reads the same bytes takes
// the lines away.
void copy_pulls(const Part& part, const Source* sources, int64_t rank, int64_t whole_bytes = 0) {
  size_t own = 0;
  while (own < part.pulls.size() && part.pulls[own].peer < rank) ++own;
  for (size_t step = 0; step < part.pulls.size(); ++step) {
    const size_t i = (own + step) % part.pulls.size();
    const Source& source = sources[i];
    if (source.data == nullptr) continue;
    const Place place = place_in(part, part.pulls[i]);
    copy_box(place.data, place.strides, source.data, source.strides, part.pulls[i].extent, part.element_bytes,
             whole_bytes);
  }
}

void reduce_landing(const Part& part, const PartLanding& landing, const Source* sources) {
  Few<StridedAddend> addends;
  for (const PartAddend& addend : landing.addends) {
    const Source& source = sources[addend.pull];
    addends.push_back(
        {.data = source.data + offset_bytes(addend.from, source.strides), .strides = source.strides});
  }
  reduce_box(part.output + offset_bytes(landing.to, part.output_strides), part.output_strides,
             {addends.data(), addends.size()}, landing.extent, *part.combine);
}

}  // namespace

void run_alone(const Part& part) {
  Few<Source> sources;
  for (const Pull& pull : part.pulls)
    sources.push_back(volume(pull.extent) > 0 ? source_here(pull) : Source{});
  if (part.combine) {
    for (const PartLanding& landing : part.landings) reduce_landing(part, landing, sources.data());
  } else {
    copy_pulls(part, sources.data(), 0);
  }
}

Execution::Execution(GroupState& state, uint64_t number, const Part& part, Path path)
    : state_(state), waiting_(*state.waiting), number_(number) {
  parts_.push_back(&part);
  paths_.push_back(path);
}

Execution::Execution(GroupState& state, uint64_t number, const PartList& parts, const Few<Path>& paths)
    : state_(state), waiting_(*state.waiting), number_(number), parts_(parts), paths_(paths) {}

void Execution::run() {
  hear_everybody();
  move();
  finish();
}

void Execution::run_leg(const Few<Said>& said) {
  for (const Said& heard : said) comes_for_all_.push_back(heard.header.for_all);
  for (size_t part = 0; part < parts_.size(); ++part) locate_pulls(part, said);
  move();
}

void Execution::move() {
  for (const Part* part : parts_) whole_bytes_ = std::max(whole_bytes_, part->list_bytes);
  if (state_.tuning.swaps) swap_.emplace(waiting_, state_.swapped);
  open_outgoing();
  open_incoming();
  if (swap_) agree_on_slots();
  if (!outgoing_.empty() || !incoming_.empty()) {
    open_local();
    stream();
  } else {
    for (size_t part = 0; part < parts_.size(); ++part) {
      if (!parts_[part]->combine)
        copy_pulls(*parts_[part], sources_.data() + first_drawn_[part], waiting_.rank(), whole_bytes_);
    }
  }
  land_rest();
  waiting_.check_owners(owners_);
}

void Execution::hear_everybody() {
  const bool is_list = parts_.size() > 1;
  Few<Header> headers;  // of a list, by rank
  Few<Said> said;       // by rank, of one part
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    const bool is_own = peer == waiting_.rank();
    headers.push_back(is_own || !is_list ? Header{}
                                         : hear_list(sight_of(state_, number_, peer), parts_.size()));
    said.push_back(is_own || is_list ? Said{} : hear(sight_of(state_, number_, peer)));
    comes_for_all_.push_back(said[static_cast<size_t>(peer)].header.for_all);
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (int64_t peer = 0; is_list && peer < waiting_.size(); ++peer) {
      if (peer == waiting_.rank()) continue;
      const auto rank = static_cast<size_t>(peer);
      said[rank] = hear_part(sight_of(state_, number_, peer), headers[rank], part);
    }
    locate_pulls(part, said);
  }
}

void Execution::locate_pulls(size_t index, const Few<Said>& said) {
  const Part& part = *parts_[index];
  for (int64_t peer = 0; part.is_reduce_scatter && peer < waiting_.size(); ++peer) {
    if (peer != waiting_.rank()) check_shape(said[static_cast<size_t>(peer)], peer, part.input.shape);
  }
  first_drawn_.push_back(drawn_.size());
  int64_t of_peer = 0;
  for (size_t i = 0; i < part.pulls.size(); ++i) {
    const Pull& pull = part.pulls[i];
    of_peer = i > 0 && part.pulls[i - 1].peer == pull.peer ? of_peer + 1 : 0;
    Source source;
    if (volume(pull.extent) > 0 && pull.here != nullptr) {
      source = source_here(pull);
    } else if (volume(pull.extent) > 0) {
      const Said& heard = said[static_cast<size_t>(pull.peer)];
      source = locate(sight_of(state_, number_, pull.peer), heard, pull, of_peer, part.element_bytes);
      if (heard.header.path == Path::arena) owners_.push_back(pull.peer);
    }
    drawn_.push_back({.part = index, .pull = &pull});
    sources_.push_back(source);
    whole_bytes_ += volume(pull.extent) * part.element_bytes;
  }
}

// Whether the source's bytes come through a ring.
bool Execution::awaits(size_t source) const {
  return sources_[source].data == nullptr && volume(drawn_[source].pull->extent) > 0;
}

BoxSize Execution::size_of(size_t source) const {
  const Drawn& drawn = drawn_[source];
  return {.extent = drawn.pull->extent, .element_bytes = parts_[drawn.part]->element_bytes};
}

Place Execution::place_of(size_t source) const {
  const Drawn& drawn = drawn_[source];
  return place_in(*parts_[drawn.part], *drawn.pull);
}

bool Execution::has_awaited(size_t part, const PartLanding& landing) const {
  return std::any_of(landing.addends.begin(), landing.addends.end(), [&](const PartAddend& addend) {
    return awaits(first_drawn_[part] + static_cast<size_t>(addend.pull));
  });
}

// Whether every addend of every landing is one whole pull, and each peer's ring brings only one of them: then
// pieces with the same number belong together, and no landing waits for another of its part.
bool Execution::is_in_step(size_t part) const {
  if (!parts_[part]->combine) return false;
  std::vector<bool> brings(static_cast<size_t>(waiting_.size()));
  for (const PartLanding& landing : parts_[part]->landings) {
    for (const PartAddend& addend : landing.addends) {
      const size_t source = first_drawn_[part] + static_cast<size_t>(addend.pull);
      const Pull& whole = *drawn_[source].pull;
      if (!(whole.extent == landing.extent)) return false;
      if (!awaits(source)) continue;
      const auto peer = static_cast<size_t>(whole.peer);
      if (brings[peer]) return false;
      brings[peer] = true;
    }
  }
  return true;
}

void Execution::open_outgoing() {
  if (std::find(paths_.begin(), paths_.end(), Path::staged) == paths_.end()) return;
  std::vector<std::vector<SentBox>> sent(static_cast<size_t>(waiting_.size()));  // by peer
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (paths_[part] != Path::staged) continue;
    for (const Push& push : parts_[part]->pushes) {
      if (push.peer != waiting_.rank())
        sent[static_cast<size_t>(push.peer)].push_back({.part = parts_[part], .push = &push});
    }
  }
  const bool for_all = parts_.size() == 1 && is_for_all(*parts_[0], waiting_.rank(), waiting_.size());
  for (std::vector<SentBox>& to_peer : sent) {
    if (to_peer.empty()) continue;
    outgoing_.emplace_back(waiting_, std::move(to_peer), for_all, swap_);
    if (for_all) break;
  }
}

void Execution::open_incoming() {
  size_t source = 0;
  while (source < sources_.size() && !awaits(source)) ++source;
  if (source == sources_.size()) return;
  sum_of_.resize(sources_.size());
  for (size_t part = 0; part < parts_.size(); ++part) {
    in_step_.push_back(is_in_step(part));
    if (in_step_[part]) find_sums(part);
  }
  set_aside();
  std::vector<std::vector<AwaitedBox>> awaited(static_cast<size_t>(waiting_.size()));  // by peer
  for (; source < sources_.size(); ++source) {
    if (!awaits(source)) continue;
    awaited[static_cast<size_t>(drawn_[source].pull->peer)].push_back(
        {.size = size_of(source),
         .place = waits_aside(source) ? aside_[source] : place_of(source),
         .sum = sum_of_[source]});
  }
  for (int64_t peer = 0; peer < waiting_.size(); ++peer) {
    const auto rank = static_cast<size_t>(peer);
    if (!awaited[rank].empty())
      incoming_.emplace_back(waiting_, peer, comes_for_all_[rank] != 0, std::move(awaited[rank]),
                             whole_bytes_, state_.tuning.hands_back, swap_);
  }
  for (Sum& sum : sums_) find_streams(sum);
}

// The landings of a part in step, but for those that can be combined where their addends lie.
void Execution::find_sums(size_t part) {
  for (const PartLanding& landing : parts_[part]->landings) {
    if (!has_awaited(part, landing)) continue;
    for (const PartAddend& addend : landing.addends)
      sum_of_[first_drawn_[part] + static_cast<size_t>(addend.pull)] = sums_.size();
    sums_.push_back({.part = part, .landing = &landing});
  }
}

void Execution::find_streams(Sum& sum) const {
  for (const PartAddend& addend : sum.landing->addends) {
    const size_t source = first_drawn_[sum.part] + static_cast<size_t>(addend.pull);
    if (!awaits(source)) continue;
    const auto brings = [&](const Incoming& in) { return in.peer() == drawn_[source].pull->peer; };
    const auto found = std::find_if(incoming_.begin(), incoming_.end(), brings);
    sum.incoming.push_back(static_cast<size_t>(found - incoming_.begin()));
  }
}

// Whether a source is an addend that comes through a ring, and is combined only when all have come.
bool Execution::waits_aside(size_t source) const {
  const size_t part = drawn_[source].part;
  return parts_[part]->combine && !in_step_[part] && awaits(source);
}

// Finds memory for the addends that wait.
void Execution::set_aside() {
  constexpr size_t kLineBytes = 64;
  const auto bytes_of = [&](size_t source) {
    const BoxSize size = size_of(source);
    const auto bytes = static_cast<size_t>(volume(size.extent) * size.element_bytes);
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  };
  size_t whole = 0;
  for (size_t source = 0; source < sources_.size(); ++source)
    whole += waits_aside(source) ? bytes_of(source) : 0;
  if (whole == 0) return;
  std::byte* next = state_.aside.of(whole);
  for (size_t source = 0; source < sources_.size(); ++source) {
    const BoxSize size = size_of(source);
    aside_.push_back({.data = next, .strides = packed_strides(size.extent, size.element_bytes)});
    if (waits_aside(source)) next += bytes_of(source);
  }
}

// Both ranks count the same pieces: what one puts, the other takes.
void Execution::agree_on_slots() {
  const int64_t in = incoming_.empty() ? 0 : incoming_.front().pieces();
  const int64_t out = outgoing_.empty() ? 0 : outgoing_.front().pieces();
  if (out > 0) outgoing_.front().expect(in);
  if (in > 0 && out > 0) incoming_.front().answer_with(out, outgoing_.front().piece_bytes());
  state_.swapped += static_cast<uint64_t>(std::max(in, out));
}

// Pulls that need no ring are copied a piece at a time, between the pieces that go through rings. So peers
// need not wait for these copies, and a piece that was just put into a slot is still in the cache.
void Execution::open_local() {
  std::vector<BoxSize> sizes;
  const std::optional<size_t> goes_out = pull_of_what_goes_out();
  if (goes_out) outgoing_.front().put_also_at(place_of(*goes_out));
  for (size_t source = 0; source < sources_.size(); ++source) {
    const Part& part = *parts_[drawn_[source].part];
    if (part.combine || sources_[source].data == nullptr || source == goes_out) continue;
    local_.push_back(source);
    sizes.push_back(size_of(source));
  }
  local_cursor_.emplace(std::move(sizes), most_piece_bytes(waiting_, swap_));
}

// Returns the pull of this rank's own box, if it is the same box that the rank puts into its only ring. An
// output that is written past the cache is left to copy_local_piece.
std::optional<size_t> Execution::pull_of_what_goes_out() const {
  const bool is_copy = parts_.size() == 1 && !parts_[0]->combine;
  if (!is_copy || outgoing_.size() != 1 || whole_bytes_ >= kStreamFromBytes) return std::nullopt;
  const Push* push = outgoing_.front().only_push();
  for (size_t i = 0; i < drawn_.size() && push != nullptr; ++i) {
    const Pull& pull = *drawn_[i].pull;
    const bool is_own = pull.peer == waiting_.rank() && volume(pull.extent) > 0;
    if (is_own && pull.from == push->from && pull.extent == push->extent) return i;
  }
  return std::nullopt;
}

bool Execution::copy_local_piece() {
  if (local_cursor_->is_done()) return false;
  const size_t index = local_[local_cursor_->box()];
  const Piece piece = local_cursor_->piece();
  const Source& source = sources_[index];
  const Place place = place_of(index);
  copy_box(at(place, piece.offset), place.strides, source.data + offset_bytes(piece.offset, source.strides),
           source.strides, piece.extent, local_cursor_->element_bytes(), whole_bytes_);
  local_cursor_->advance();
  return true;
}

// Combines the addends that were not combined as they came: those that waited aside, and those that can be
// read where they lie.
void Execution::land_rest() {
  for (size_t source = 0; source < aside_.size(); ++source) {
    if (waits_aside(source))
      sources_[source] = {.data = aside_[source].data, .strides = aside_[source].strides};
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (!parts_[part]->combine) continue;
    const bool has_sums = !in_step_.empty() && in_step_[part];
    for (const PartLanding& landing : parts_[part]->landings) {
      if (!has_sums || !has_awaited(part, landing))
        reduce_landing(*parts_[part], landing, sources_.data() + first_drawn_[part]);
    }
  }
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

// Whether the next piece of an incoming stream can be taken. Among the streams of a sum, the first one
// answers for all, and the others return false.
bool Execution::has_next_of(size_t incoming) const {
  const auto is_there = [&](size_t i) { return !incoming_[i].is_done() && incoming_[i].is_available(); };
  if (!is_there(incoming)) return false;
  const std::optional<size_t> sum = incoming_[incoming].sum();
  if (!sum) return true;
  const std::vector<size_t>& streams = sums_[*sum].incoming;
  return streams.front() == incoming && std::all_of(streams.begin(), streams.end(), [&](size_t i) {
           return is_there(i) && incoming_[i].sum() == sum;
         });
}

bool Execution::can_step() const {
  for (const Outgoing& out : outgoing_) {
    if (!out.is_done() && out.has_room()) return true;
  }
  for (size_t i = 0; i < incoming_.size(); ++i) {
    if (has_next_of(i)) return true;
  }
  return false;
}

// All peers that this rank waits for. If one of them were dead and nobody looked at it, two other ranks might
// wait for each other because of it.
std::vector<int64_t> Execution::blockers() const {
  std::vector<int64_t> peers;
  for (const Incoming& in : incoming_) {
    if (!in.is_done() && !in.is_available()) peers.push_back(in.peer());
  }
  for (const Outgoing& out : outgoing_) {
    if (!out.is_done()) out.add_blockers(peers);
  }
  if (peers.empty()) peers.push_back((waiting_.rank() + 1) % waiting_.size());  // it has just come
  return peers;
}

// Moves one piece of every stream that can move, out and in, and copies one local piece. Returns whether
// anything moved.
bool Execution::step() {
  bool moved = false;
  for (Outgoing& out : outgoing_) {
    if (out.is_done() || !out.has_room()) continue;
    out.put();
    moved = true;
  }
  moved |= copy_local_piece();
  for (size_t i = 0; i < incoming_.size(); ++i) {
    if (!has_next_of(i)) continue;
    if (const std::optional<size_t> sum = incoming_[i].sum()) {
      reduce_piece(sums_[*sum]);
    } else {
      incoming_[i].take();
    }
    moved = true;
  }
  return moved;
}

void Execution::reduce_piece(const Sum& sum) {
  const Part& part = *parts_[sum.part];
  const PartLanding& landing = *sum.landing;
  const Piece piece = incoming_[sum.incoming.front()].piece();
  const FixedDims packed = packed_strides(piece.extent, part.element_bytes);
  Few<StridedAddend> addends;
  size_t next = 0;
  for (const PartAddend& addend : landing.addends) {
    const size_t pull = first_drawn_[sum.part] + static_cast<size_t>(addend.pull);
    const Source& source = sources_[pull];
    if (awaits(pull)) {
      addends.push_back({.data = incoming_[sum.incoming[next++]].slot(), .strides = packed});
    } else {
      addends.push_back(
          {.data = source.data + offset_bytes(piece.offset, source.strides), .strides = source.strides});
    }
  }
  const Place place{.data = part.output + offset_bytes(landing.to, part.output_strides),
                    .strides = part.output_strides};
  reduce_box(at(place, piece.offset), place.strides, {addends.data(), addends.size()}, piece.extent,
             *part.combine, volume(landing.extent) * part.element_bytes);
  for (const size_t incoming : sum.incoming) incoming_[incoming].done();
}

void Execution::finish() {
  hand_back_payload(state_, number_);
  if (!owners_.empty()) say_read(waiting_, number_);
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (paths_[part] == Path::arena) await_readers(waiting_, number_, parts_[part]->pushes);
  }
}

}  // namespace shardway::shm
