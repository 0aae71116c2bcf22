#include "plan/hosts/two_levels.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "plan/hosts/parcels.h"
#include "plan/hosts/run_table.h"

namespace shardway {
namespace {

// A part of one rank's run that goes into another rank's.
struct RunMove {
  int64_t from = 0;
  int64_t to = 0;
  int64_t source = 0;
  int64_t target = 0;
  int64_t elements = 0;
};

Box run_box(int64_t offset, int64_t elements) { return {.offset = {offset}, .extent = {elements}}; }

// The part of one rank in moves between runs, which all ranks concerned list in the same order.
Route route_of(const std::vector<RunMove>& moves, int64_t rank, int64_t ranks, int64_t input_elements,
               int64_t output_elements) {
  Route route{
      .rank = rank, .size = ranks, .input_shape = {input_elements}, .output_shape = {output_elements}};
  for (const RunMove& move : moves) {
    const Box source = run_box(move.source, move.elements);
    const Box target = run_box(move.target, move.elements);
    if (move.to == rank) route.pulls.push_back({.peer = move.from, .mine = target, .theirs = source});
    if (move.from == rank) route.pushes.push_back({.peer = move.to, .mine = source, .theirs = target});
  }
  const auto by_peer = [](const Move& a, const Move& b) { return a.peer < b.peer; };
  std::stable_sort(route.pulls.begin(), route.pulls.end(), by_peer);
  std::stable_sort(route.pushes.begin(), route.pushes.end(), by_peer);
  return route;
}

bool is_sum(const Landing& landing) { return landing.addends.size() > 1; }

// Makes the plans of some ranks of a host, and as much of the others' there as that takes.
class Planner {
 public:
  Planner(const HostMap& hosts, int64_t host, const std::vector<ToldRoute>& told, int64_t element_bytes)
      : hosts_(hosts),
        host_(host),
        told_(told),
        element_bytes_(element_bytes),
        mates_(hosts.ranks_of(host)),
        parts_(mates_.size()) {
    for (const ToldRoute& one : told_) {
      const std::vector<Landing> parts = landings(one.route);
      combines_.push_back(std::any_of(parts.begin(), parts.end(), is_sum));
      staged_.emplace_back(one.route.input_shape, one.has_contiguous_input);
      landed_.emplace_back(one.route.output_shape, one.has_contiguous_output);
      if (combines_.back()) landed_.back().land_aside();
    }
  }

  // By rank, in the order of `ranks`.
  std::vector<TwoLevels> plans(const std::vector<int64_t>& ranks) {
    for (const int64_t rank : ranks) part_of_mate(rank).is_wanted = true;
    list_parcels();
    place_runs();
    carry_parcels();
    add_home_sums();
    std::vector<TwoLevels> plans;
    plans.reserve(ranks.size());
    for (const int64_t rank : ranks) {
      plans.push_back(routes_of(rank));
      add_home(rank, plans.back());
      if (combines_[place(rank)]) combine(rank, plans.back());
    }
    return plans;
  }

 private:
  using Side = std::vector<Cargo>;                       // by other host
  using SideMoves = std::vector<std::vector<HostMove>>;  // likewise

  // What a rank of the host sends to others, receives from them and combines.
  struct Part {
    bool is_wanted = false;
    std::vector<RunMove> copies = {};
    std::vector<RunMove> crossing = {};
    int64_t crossed_elements = 0;
    std::map<int64_t, std::vector<HostOperand>> operands = {};  // by host
  };

  // A sum: runs of equal length in the memories of their owners.
  struct Made {
    int64_t maker = 0;
    int64_t elements = 0;
    std::vector<std::pair<int64_t, int64_t>> sources = {};  // owner and offset

    auto operator<=>(const Made&) const = default;
  };

  size_t place(int64_t rank) const { return static_cast<size_t>(hosts_.place_of(rank)); }
  bool is_here(int64_t rank) const { return hosts_.host_of(rank) == host_; }
  int64_t local(int64_t rank) const { return hosts_.place_of(rank); }
  const Route& route_of_mate(int64_t rank) const { return told_[place(rank)].route; }
  Part& part_of_mate(int64_t rank) { return parts_[place(rank)]; }

  // The moves from this host to every other, ordered by receiver.
  SideMoves moves_out() const {
    SideMoves moves(static_cast<size_t>(hosts_.hosts()));
    for (const int64_t mate : mates_) {
      for (const Move& push : route_of_mate(mate).pushes) {
        if (is_here(push.peer)) continue;
        moves[static_cast<size_t>(hosts_.host_of(push.peer))].push_back(
            {.from = mate, .to = push.peer, .input = push.mine, .output = push.theirs});
      }
    }
    const auto by_receiver = [](const HostMove& a, const HostMove& b) { return a.to < b.to; };
    for (auto& to_host : moves) std::stable_sort(to_host.begin(), to_host.end(), by_receiver);
    return moves;
  }

  // The moves from every host to this one, ordered by receiver.
  SideMoves moves_in() const {
    SideMoves moves(static_cast<size_t>(hosts_.hosts()));
    for (const int64_t mate : mates_) {
      for (const Move& pull : route_of_mate(mate).pulls)
        moves[static_cast<size_t>(hosts_.host_of(pull.peer))].push_back(
            {.from = pull.peer, .to = mate, .input = pull.theirs, .output = pull.mine});
    }
    return moves;
  }

  void list_parcels() {
    const SideMoves out = moves_out();
    SideMoves in = moves_in();
    const auto own = static_cast<size_t>(host_);
    home_sums_.resize(mates_.size());
    for_each_receiver(in[own], [&](std::span<const HostMove> to_one) {
      const size_t mate = place(to_one.front().to);
      if (combines_[mate]) home_sums_[mate] = landed_parts(to_one);
    });
    in[own].clear();
    for (const auto& moves : out) leaving_.push_back(cargo_of(parcels_of(moves)));
    for (const auto& moves : in) coming_.push_back(cargo_of(parcels_of(moves)));
  }

  void stage(const std::vector<Parcel>& parcels) {
    for (const Parcel& parcel : parcels) {
      for (const Owner& owner : parcel.owners) staged_[place(owner.rank)].add(owner.box);
    }
  }

  void place_runs() {
    for (const Cargo& cargo : leaving_) stage(cargo.parcels);
    for (const auto& parcels : home_sums_) stage(parcels);
    for (int64_t host = 0; host < hosts_.hosts(); ++host) {
      for (const Parcel& parcel : coming_[static_cast<size_t>(host)].parcels) {
        if (parcel.is_sum()) continue;
        for (const Want& want : parcel.wants) landed_[place(want.rank)].add(want.box, host);
      }
    }
  }

  // The combination of elements [begin, end) of a parcel, made by `maker` of this host. Returns where it lies
  // among the sums of the maker, who makes each only once.
  int64_t sum(const Parcel& parcel, int64_t maker, int64_t begin, int64_t end) {
    Made made{.maker = maker, .elements = end - begin};
    for (const Owner& owner : parcel.owners)
      made.sources.emplace_back(owner.rank, staged_[place(owner.rank)].offset_of(owner.box) + begin);
    int64_t& elements = sums_made_[maker];
    const auto [entry, is_new] = offset_of_sum_.try_emplace(std::move(made), elements);
    if (!is_new) return entry->second;
    for (const auto& [owner, source] : entry->first.sources) {
      sums_.push_back({.from = local(owner),
                       .to = local(maker),
                       .source = source,
                       .target = elements,
                       .elements = end - begin});
    }
    elements += end - begin;
    return entry->second;
  }

  void carry_parcels() {
    for (int64_t host = 0; host < hosts_.hosts(); ++host) {
      const Cargo& leaving = leaving_[static_cast<size_t>(host)];
      for (size_t number = 0; number < leaving.parcels.size(); ++number) send(leaving, number);
      const Cargo& coming = coming_[static_cast<size_t>(host)];
      for (size_t number = 0; number < coming.parcels.size(); ++number) receive(coming, number, host);
    }
  }

  void send(const Cargo& cargo, size_t number) {
    const Parcel& parcel = cargo.parcels[number];
    for (const ParcelPiece& piece : pieces_of(cargo, number, element_bytes_)) {
      RunMove move{.from = piece.from, .to = piece.to, .elements = piece.end - piece.begin};
      if (parcel.is_sum()) {
        move.source = sum(parcel, piece.from, piece.begin, piece.end);
      } else {
        move.source = staged_[place(piece.from)].offset_of(parcel.owners.front().box) + piece.begin;
      }
      Part& part = part_of_mate(piece.from);
      if (part.is_wanted) (parcel.is_sum() ? part.crossing : part.copies).push_back(move);
    }
  }

  void receive(const Cargo& cargo, size_t number, int64_t host) {
    const Parcel& parcel = cargo.parcels[number];
    const std::vector<ParcelPiece> pieces = pieces_of(cargo, number, element_bytes_);
    if (parcel.is_sum()) return receive_sum(parcel.wants.front(), pieces, host);
    for (const ParcelPiece& piece : pieces) hand_on(parcel, piece, host);
    for (const Want& want : parcel.wants) {
      if (!part_of_mate(want.rank).is_wanted || !combines_[place(want.rank)]) continue;
      add_operand(want.rank, host, HostOperand::Memory::landed, want.box,
                  landed_[place(want.rank)].offset_of(want.box, host));
    }
  }

  void receive_sum(const Want& want, const std::vector<ParcelPiece>& pieces, int64_t host) {
    Part& part = part_of_mate(want.rank);
    if (!part.is_wanted) return;
    for (const ParcelPiece& piece : pieces) {
      part.crossing.push_back({.from = piece.from,
                               .to = want.rank,
                               .target = part.crossed_elements + piece.begin,
                               .elements = piece.end - piece.begin});
    }
    add_operand(want.rank, host, HostOperand::Memory::crossed_sums, want.box, part.crossed_elements);
    part.crossed_elements += want.box.volume();
  }

  void add_operand(int64_t rank, int64_t host, HostOperand::Memory memory, const Box& box, int64_t offset) {
    part_of_mate(rank).operands[host].push_back({.memory = memory, .run = {.box = box, .offset = offset}});
  }

  // A piece lands where its receiver first wants it; from there it goes to all other places.
  void hand_on(const Parcel& parcel, const ParcelPiece& piece, int64_t host) {
    const auto is_receiver = [&](const Want& want) { return want.rank == piece.to; };
    const auto first = std::find_if(parcel.wants.begin(), parcel.wants.end(), is_receiver);
    const auto offset_at = [&](const Want& want) {
      return landed_[place(want.rank)].offset_of(want.box, host) + piece.begin;
    };
    const RunMove move{
        .from = piece.from, .to = piece.to, .target = offset_at(*first), .elements = piece.end - piece.begin};
    Part& part = part_of_mate(piece.to);
    if (part.is_wanted) part.copies.push_back(move);
    for (auto want = parcel.wants.begin(); want != parcel.wants.end(); ++want) {
      if (want == first) continue;
      handover_.push_back({.from = local(piece.to),
                           .to = local(want->rank),
                           .source = move.target,
                           .target = offset_at(*want),
                           .elements = move.elements});
    }
  }

  void add_home_sums() {
    for (const int64_t mate : mates_) {
      for (const Parcel& part : home_sums_[place(mate)]) {
        const int64_t offset = sum(part, mate, 0, part.elements());
        if (part_of_mate(mate).is_wanted)
          add_operand(mate, host_, HostOperand::Memory::home_sums, part.wants.front().box, offset);
      }
    }
  }

  TwoLevels routes_of(int64_t rank) {
    const RunTable& staged = staged_[place(rank)];
    const RunTable& landed = landed_[place(rank)];
    const Part& part = part_of_mate(rank);
    const auto ranks = static_cast<int64_t>(mates_.size());
    const int64_t made = sums_made_[rank];
    TwoLevels plan{.stages_input = staged.is_aside(),
                   .staged = staged.runs(),
                   .staged_elements = staged.elements(),
                   .lands_aside = landed.is_aside(),
                   .landed = landed.runs(),
                   .landed_elements = landed.elements()};
    plan.copies = route_of(part.copies, rank, hosts_.ranks(), staged.elements(), landed.elements());
    plan.sums = route_of(sums_, local(rank), ranks, staged.elements(), made);
    plan.sums.op = route_of_mate(rank).op;
    plan.crossing = route_of(part.crossing, rank, hosts_.ranks(), made, part.crossed_elements);
    plan.handover = route_of(handover_, local(rank), ranks, landed.elements(), landed.elements());
    plan.has_sums = !sums_.empty();
    plan.has_handover = !handover_.empty();
    return plan;
  }

  // What ranks of the host copy from one another goes straight from tensor to tensor.
  void add_home(int64_t rank, TwoLevels& plan) const {
    const Route& own = route_of_mate(rank);
    Route& home = plan.home;
    home = {.rank = local(rank),
            .size = static_cast<int64_t>(mates_.size()),
            .input_shape = own.input_shape,
            .output_shape = own.output_shape};
    const auto moved_to = [this](Move move, int64_t peer) {
      move.peer = local(peer);
      return move;
    };
    for (const Move& pull : own.pulls) {
      if (is_here(pull.peer) && !combines_[place(rank)]) home.pulls.push_back(moved_to(pull, pull.peer));
    }
    for (const Move& push : own.pushes) {
      if (is_here(push.peer) && !combines_[place(push.peer)])
        home.pushes.push_back(moved_to(push, push.peer));
    }
    for (const int64_t mate : mates_) {
      const Moves& pulls = route_of_mate(mate).pulls;
      if (combines_[place(mate)]) continue;
      if (std::any_of(pulls.begin(), pulls.end(), [this](const Move& pull) { return is_here(pull.peer); }))
        plan.has_home = true;
    }
  }

  // The parts on which the same moves of one host land may be larger than those on which the same moves of
  // all hosts land.
  void combine(int64_t rank, TwoLevels& plan) {
    for (const Landing& part : landings(route_of_mate(rank))) {
      HostSum sum{.box = part.box};
      for (const auto& [host, operands] : part_of_mate(rank).operands) {
        for (const HostOperand& operand : operands) {
          if (contains(operand.run.box, part.box)) sum.operands.push_back(operand);
        }
      }
      plan.host_sums.push_back(std::move(sum));
    }
  }

  const HostMap& hosts_;
  int64_t host_;
  const std::vector<ToldRoute>& told_;
  int64_t element_bytes_;
  const std::vector<int64_t>& mates_;

  std::vector<bool> combines_;    // by place
  std::vector<RunTable> staged_;  // by place
  std::vector<RunTable> landed_;  // by place
  Side leaving_;
  Side coming_;
  std::vector<std::vector<Parcel>> home_sums_;  // by place

  std::vector<Part> parts_;  // by place
  std::vector<RunMove> sums_;
  std::vector<RunMove> handover_;
  std::map<int64_t, int64_t> sums_made_;  // elements, by rank
  std::map<Made, int64_t> offset_of_sum_;
};

// Whether two boxes may be the same, as far as their tellers know.
bool may_be_same(const Box& a, const Box& b) {
  return a.extent == b.extent && (!is_known(a) || !is_known(b) || a.offset == b.offset);
}

Moves moves_with(const Moves& moves, int64_t peer) {
  Moves found;
  const auto is_meant = [peer](const Move& move) { return move.peer == peer && move.mine.volume() > 0; };
  std::copy_if(moves.begin(), moves.end(), std::back_inserter(found), is_meant);
  return found;
}

// A rank reads and hands out its memory by what others of its host say: they must mean the same moves.
void check_told(const HostMap& hosts, int64_t host, const std::vector<ToldRoute>& told) {
  const auto is_same = [](const Move& push, const Move& pull) {
    return may_be_same(push.mine, pull.theirs) && may_be_same(push.theirs, pull.mine);
  };
  for (const int64_t from : hosts.ranks_of(host)) {
    for (const int64_t to : hosts.ranks_of(host)) {
      const Moves pushes = moves_with(told[static_cast<size_t>(hosts.place_of(from))].route.pushes, to);
      const Moves pulls = moves_with(told[static_cast<size_t>(hosts.place_of(to))].route.pulls, from);
      if (!std::equal(pushes.begin(), pushes.end(), pulls.begin(), pulls.end(), is_same))
        throw std::invalid_argument("ranks " + std::to_string(from) + " and " + std::to_string(to) +
                                    " do not agree on what moves between them");
    }
  }
}

}  // namespace

TwoLevels two_levels_of(const HostMap& hosts, int64_t rank, const std::vector<ToldRoute>& told,
                        int64_t element_bytes) {
  check_told(hosts, hosts.host_of(rank), told);
  return std::move(Planner(hosts, hosts.host_of(rank), told, element_bytes).plans({rank}).front());
}

std::vector<TwoLevels> two_levels_of_host(const HostMap& hosts, int64_t host,
                                          const std::vector<ToldRoute>& told, int64_t element_bytes) {
  return Planner(hosts, host, told, element_bytes).plans(hosts.ranks_of(host));
}

}  // namespace shardway
