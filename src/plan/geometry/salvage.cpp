#include "plan/geometry/salvage.h"

#include <algorithm>
#include <utility>

#include "plan/geometry/number_text.h"
#include "plan/geometry/overlaps.h"

namespace shardway {
namespace {

Box common(const Box& a, const Box& b) {
  Box box = a;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const Interval both = common(Interval{a.offset[d], a.offset[d] + a.extent[d]},
                                 Interval{b.offset[d], b.offset[d] + b.extent[d]});
    box.offset[d] = both.begin;
    box.extent[d] = both.length();
  }
  return box;
}

// The box as seen from the beginning of another that contains it.
Box within(const Box& outer, Box box) {
  for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] -= outer.offset[d];
  return box;
}

Box box_of(const PartChoice& choice, size_t dims) {
  Box box{.offset = Dims(dims), .extent = Dims(dims)};
  for (size_t d = 0; d < dims; ++d) {
    box.offset[d] = choice[d].overlap.begin;
    box.extent[d] = choice[d].overlap.length();
  }
  return box;
}

void sort_by_peer(Moves& moves) {
  std::stable_sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) { return a.peer < b.peer; });
}

}  // namespace

Salvage::Salvage(std::vector<Layout> layouts, Layout to, GroupRanks living)
    : to_(std::move(to)), living_(std::move(living)) {
  living_.check_cover(to_.mesh());
  for (Layout& layout : layouts) {
    ExchangeRules rules = exchange_rules_between(layout, to_);
    std::vector<int64_t> replicas = distances_along(layout.mesh(), rules.fixed);
    std::vector<int64_t> addends = distances_along(layout.mesh(), rules.resolved);
    sources_.push_back({.layout = std::move(layout),
                        .rules = std::move(rules),
                        .replicas = std::move(replicas),
                        .addends = std::move(addends)});
  }
}

bool Salvage::lives(const Source& source, int64_t position) const {
  return living_.rank_of(source.layout.mesh().ranks()[static_cast<size_t>(position)]).has_value();
}

// Where the receiver at this position of the target's mesh reads what is held at `place` and at its replicas.
// Receivers that cannot read at their home are spread over the other replicas.
std::optional<int64_t> Salvage::holder_of(const Source& source, int64_t place, int64_t receiver) const {
  const ExchangeRules& rules = source.rules;
  const auto home = rules.home_of(source.layout, to_, receiver);
  const int64_t nearest = place + position_along(source.layout.mesh(), home, rules.fixed);
  if (lives(source, nearest)) return nearest;
  const size_t count = source.replicas.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t position = place + source.replicas[(static_cast<size_t>(receiver) + i) % count];
    if (lives(source, position)) return position;
  }
  return std::nullopt;
}

// The same for all addends that belong to `place`; empty if one of them is lost.
std::vector<int64_t> Salvage::holders_of(const Source& source, int64_t place, int64_t receiver) const {
  std::vector<int64_t> holders;
  for (const int64_t distance : source.addends) {
    const auto holder = holder_of(source, place + distance, receiver);
    if (!holder) return {};
    holders.push_back(*holder);
  }
  return holders;
}

// Calls `held` with every piece of the wanted box that a living rank holds, and `lost` with the others.
template <class Held, class Lost>
void Salvage::find(const Box& wanted, size_t source, int64_t receiver, const Held& held,
                   const Lost& lost) const {
  if (source == sources_.size()) {
    lost(wanted);
    return;
  }
  const Overlaps overlaps = overlaps_with(sources_[source].layout, wanted);
  PartChoice choice(overlaps);
  for (size_t number = 0; number < choice.count(); ++number) {
    choice.go_to(number);
    const Box box = box_of(choice, wanted.offset.size());
    std::vector<int64_t> positions = holders_of(sources_[source], choice.place(), receiver);
    if (positions.empty()) {
      find(box, source + 1, receiver, held, lost);
    } else {
      held(Piece{.source = source, .box = box, .positions = std::move(positions)});
    }
  }
}

template <class Held>
void Salvage::find_held(const Box& wanted, int64_t receiver, const Held& held) const {
  if (wanted.volume() > 0) find(wanted, 0, receiver, held, [](const Box&) {});
}

std::vector<int64_t> Salvage::gone_with(const Box& box) const {
  std::vector<int64_t> gone;
  for (const Source& source : sources_) {
    const Overlaps overlaps = overlaps_with(source.layout, box);
    const int64_t place = PartChoice(overlaps).place();
    for (const int64_t addend : source.addends) {
      if (holder_of(source, place + addend, /*receiver=*/0)) continue;
      for (const int64_t replica : source.replicas) {
        const int64_t position = place + addend + replica;
        gone.push_back(source.layout.mesh().ranks()[static_cast<size_t>(position)]);
      }
    }
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  return gone;
}

std::vector<LostBox> Salvage::lost() const {
  std::vector<LostBox> result;
  const Box whole = Box::whole(to_.shape());
  const auto note = [&](const Box& box) { result.push_back({.box = box, .gone = gone_with(box)}); };
  if (whole.volume() > 0)
    find(
        whole, 0, /*receiver=*/0, [](const Piece&) {}, note);
  return result;
}

void Salvage::add_pulls(int64_t receiver, std::vector<Route>& routes) const {
  const Box mine = to_.box_at(receiver);
  find_held(mine, receiver, [&](const Piece& piece) {
    const Source& source = sources_[piece.source];
    for (const int64_t position : piece.positions) {
      const int64_t number = source.layout.mesh().ranks()[static_cast<size_t>(position)];
      routes[piece.source].pulls.push_back({.peer = *living_.rank_of(number),
                                            .mine = within(mine, piece.box),
                                            .theirs = within(source.layout.box_at(position), piece.box)});
    }
  });
}

// A receiver finds the same pieces in what it has in common with this rank's box, in the same order.
void Salvage::add_pushes(size_t source, int64_t position, Route& route) const {
  const Source& from = sources_[source];
  const Box mine = from.layout.box_at(position);
  for (int64_t receiver = 0; receiver < to_.mesh().size(); ++receiver) {
    const Box theirs = to_.box_at(receiver);
    find_held(common(mine, theirs), receiver, [&](const Piece& piece) {
      if (piece.source != source || !std::ranges::count(piece.positions, position)) return;
      const int64_t number = to_.mesh().ranks()[static_cast<size_t>(receiver)];
      route.pushes.push_back({.peer = *living_.rank_of(number),
                              .mine = within(mine, piece.box),
                              .theirs = within(theirs, piece.box)});
    });
  }
}

std::vector<Route> Salvage::routes(int64_t rank) const {
  const int64_t number = living_.number_of(rank);
  const std::vector<int64_t> nothing(to_.shape().size(), 0);
  const auto receiver = to_.mesh().position_of(number);
  std::vector<Route> routes;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    Route route{.rank = rank, .size = living_.size(), .input_shape = nothing, .output_shape = nothing};
    route.op = source.rules.op;
    route.divisor = source.rules.divisor;
    if (receiver) route.output_shape = to_.box_at(*receiver).extent;
    if (const auto position = source.layout.mesh().position_of(number)) {
      route.input_shape = source.layout.box_at(*position).extent;
      add_pushes(i, *position, route);
    }
    routes.push_back(std::move(route));
  }
  if (receiver) add_pulls(*receiver, routes);
  for (Route& route : routes) {
    sort_by_peer(route.pulls);
    sort_by_peer(route.pushes);
  }
  return routes;
}

std::string to_string(const std::vector<LostBox>& lost, const Layout& layout) {
  constexpr size_t kMostShown = 4;
  std::string text = to_string(layout) + " has lost ";
  for (size_t i = 0; i < std::min(lost.size(), kMostShown); ++i) {
    const LostBox& part = lost[i];
    const std::string box = part.box.offset.empty() ? "its element" : to_string(part.box);
    text += (i == 0 ? "" : ", ") + box + " with rank" + (part.gone.size() > 1 ? "s " : " ") +
            ranges_of(part.gone);
  }
  if (lost.size() > kMostShown) text += ", and " + std::to_string(lost.size() - kMostShown) + " boxes more";
  return text;
}

}  // namespace shardway
