#include "plan/search/relabel.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

#include "plan/geometry/assignment.h"
#include "plan/geometry/cuts.h"
#include "plan/geometry/exchange_rules.h"
#include "plan/geometry/number_text.h"
#include "shardway/plan.h"

namespace shardway {
namespace {

constexpr size_t kMostRelabelled = 1024;  // some seconds

int64_t common_volume(const Box& a, const Box& b) {
  int64_t volume = 1;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const Interval mine{a.offset[d], a.offset[d] + a.extent[d]};
    volume *= common(mine, {b.offset[d], b.offset[d] + b.extent[d]}).length();
  }
  return volume;
}

void add_held_bytes(const AlikeMoves& moves, const std::vector<int64_t>& candidates, WorthTable& worths) {
  std::vector<std::optional<Box>> held;
  for (const int64_t rank : candidates) {
    const auto position = moves.from.mesh().position_of(rank);
    held.push_back(position ? std::optional(moves.from.box_at(*position)) : std::nullopt);
  }
  const int64_t bytes = item_bytes(moves.to.dtype()) * moves.tensors;
  for (size_t position = 0; position < worths.rows(); ++position) {
    const Box wanted = moves.to.box_at(static_cast<int64_t>(position));
    for (size_t i = 0; i < held.size(); ++i) {
      if (held[i]) worths.at(position, i).bytes += common_volume(wanted, *held[i]) * bytes;
    }
  }
}

// What all plans send together, and what they cost.
struct Bill {
  int64_t total_bytes = 0;
  double cost_us = 0;
};

// Targets whose meshes have the same ranks in the same order.
class LikeRanked {
 public:
  explicit LikeRanked(const std::vector<int64_t>& ranks) : ranks_(ranks) {}

  const std::vector<int64_t>& ranks() const { return ranks_; }
  const std::vector<size_t>& tensors() const { return tensors_; }

  void add(size_t tensor, const Layout& from, const Layout& to) {
    tensors_.push_back(tensor);
    for (AlikeMoves& moves : moves_) {
      if (moves.from == from && moves.to == to) {
        ++moves.tensors;
        return;
      }
    }
    moves_.push_back({from, to});
  }

  // Chooses ranks and says what they save. If there is no way to a target, it saves nothing.
  Relabelling relabelling(const std::vector<int64_t>& candidates, const PlanOptions& options) const {
    const auto is_impossible = [](const AlikeMoves& moves) {
      return why_not(moves.from, moves.to).has_value();
    };
    if (std::any_of(moves_.begin(), moves_.end(), is_impossible)) return {ranks_, ranks_};
    const Bill given = bill_for(ranks_, options);
    Relabelling unchanged{ranks_, ranks_, given.total_bytes, given.total_bytes};
    if (std::any_of(moves_.begin(), moves_.end(), keeps_addends)) return unchanged;
    const std::vector<int64_t> chosen = ranks_that_hold_most(moves_, candidates);
    if (chosen == ranks_) return unchanged;
    const auto bill = possible_bill_for(chosen, options);
    if (!bill || bill->total_bytes >= given.total_bytes || bill->cost_us > given.cost_us) return unchanged;
    return {ranks_, chosen, given.total_bytes, bill->total_bytes};
  }

  static Layout on_ranks(const Layout& layout, const std::vector<int64_t>& ranks) {
    const Mesh& mesh = layout.mesh();
    return layout.with(Mesh(mesh.shape(), ranks, mesh.names()), layout.placements(), layout.order());
  }

 private:
  static bool keeps_addends(const AlikeMoves& moves) {
    const auto& placements = moves.to.placements();
    return std::any_of(placements.begin(), placements.end(),
                       [](const Placement& p) { return p.is_partial(); });
  }

  Bill bill_for(const std::vector<int64_t>& ranks, const PlanOptions& options) const {
    Bill bill;
    for (const AlikeMoves& moves : moves_) {
      const auto best = plan(moves.from, on_ranks(moves.to, ranks), options);
      bill.total_bytes += best->total_bytes * moves.tensors;
      bill.cost_us += best->cost_us * static_cast<double>(moves.tensors);
    }
    return bill;
  }

  // Nothing if there is no plan within the limit on memory.
  std::optional<Bill> possible_bill_for(const std::vector<int64_t>& ranks, const PlanOptions& options) const {
    try {
      return bill_for(ranks, options);
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
  }

  std::vector<int64_t> ranks_;
  std::vector<size_t> tensors_;
  std::vector<AlikeMoves> moves_;
};

std::vector<LikeRanked> by_ranks(const std::vector<Layout>& from, const std::vector<Layout>& to) {
  std::vector<LikeRanked> all;
  for (size_t i = 0; i < to.size(); ++i) {
    const auto& ranks = to[i].mesh().ranks();
    auto found =
        std::find_if(all.begin(), all.end(), [&](const LikeRanked& one) { return one.ranks() == ranks; });
    if (found == all.end()) found = all.insert(all.end(), LikeRanked(ranks));
    found->add(i, from[i], to[i]);
  }
  return all;
}

// The ranks to choose from, in ascending order.
std::vector<int64_t> candidates_for(const std::vector<int64_t>& mesh_ranks, const Relabel& relabel) {
  std::vector<int64_t> candidates = relabel.among.empty() ? mesh_ranks : relabel.among;
  std::sort(candidates.begin(), candidates.end());
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("relabel: " + why); };
  if (candidates.front() < 0) refuse("rank " + std::to_string(candidates.front()) + " is negative");
  if (const auto twin = std::adjacent_find(candidates.begin(), candidates.end()); twin != candidates.end())
    refuse("rank " + std::to_string(*twin) + " is named twice");
  if (candidates.size() < mesh_ranks.size())
    refuse(std::to_string(candidates.size()) + " ranks to choose from are too few for a mesh of " +
           std::to_string(mesh_ranks.size()));
  if (candidates.size() > kMostRelabelled)
    refuse(std::to_string(candidates.size()) + " ranks to choose from are more than " +
           std::to_string(kMostRelabelled));
  return candidates;
}

}  // namespace

std::vector<int64_t> ranks_that_hold_most(const std::vector<AlikeMoves>& moves,
                                          const std::vector<int64_t>& candidates) {
  const std::vector<int64_t>& given = moves.front().to.mesh().ranks();
  WorthTable worths(given.size(), candidates.size());
  for (const AlikeMoves& some : moves) add_held_bytes(some, candidates, worths);
  for (size_t position = 0; position < given.size(); ++position) {
    const auto own = std::find(candidates.begin(), candidates.end(), given[position]);
    if (own != candidates.end()) worths.at(position, static_cast<size_t>(own - candidates.begin())).kept = 1;
  }
  std::vector<int64_t> ranks;
  for (const size_t column : best_assignment(worths)) ranks.push_back(candidates[column]);
  return ranks;
}

RelabelledTargets relabelled(const std::vector<Layout>& from, const std::vector<Layout>& to,
                             const Relabel& relabel, const PlanOptions& options) {
  if (from.size() != to.size())
    throw std::invalid_argument("relabel: there are " + std::to_string(to.size()) + " targets for " +
                                std::to_string(from.size()) + " tensors");
  if (options.rules != Rules::shardway)
    throw std::invalid_argument("relabel: the rules " + std::string(name_of(options.rules)) +
                                " have no way between meshes");
  PlanOptions as_given = options;
  as_given.relabel.reset();
  RelabelledTargets result{.to = to};
  for (const LikeRanked& targets : by_ranks(from, to)) {
    const std::vector<int64_t> candidates = candidates_for(targets.ranks(), relabel);
    result.relabellings.push_back(targets.relabelling(candidates, as_given));
    for (const size_t i : targets.tensors())
      result.to[i] = LikeRanked::on_ranks(to[i], result.relabellings.back().ranks);
  }
  return result;
}

}  // namespace shardway
