#include "plan/geometry/exchange_rules.h"

#include <stdexcept>

#include "plan/geometry/number_text.h"

namespace shardway {
namespace {

bool stays(const Layout& from, const Layout& to, size_t mesh_dim) {
  return from.mesh() == to.mesh() && from.placements()[mesh_dim] == to.placements()[mesh_dim];
}

}  // namespace

bool makes_addends(const Layout& from, const Layout& to) {
  for (size_t m = 0; m < to.placements().size(); ++m) {
    if (to.placements()[m].is_partial() && !stays(from, to, m)) return true;
  }
  return false;
}

std::optional<std::string> why_not(const Layout& from, const Layout& to) {
  if (from.shape() != to.shape()) {
    return "the shapes differ: " + join(from.shape(), "x") + " and " + join(to.shape(), "x");
  }
  if (from.dtype() != to.dtype()) {
    return std::string("the dtypes differ: ") + name_of(from.dtype()) + " and " + name_of(to.dtype());
  }
  if (makes_addends(from, to)) {
    return "from " + placements_text(from) + " to " + placements_text(to) +
           ": addends are never made, so that a Partial can only stay as it is, on the same mesh";
  }
  return std::nullopt;
}

ExchangeRules exchange_rules_between(const Layout& from, const Layout& to) {
  if (const auto reason = why_not(from, to)) throw std::invalid_argument("redistribute: " + *reason);
  ExchangeRules rules{.is_same_mesh = from.mesh() == to.mesh()};
  for (size_t m = 0; m < from.placements().size(); ++m) {
    const Placement& placement = from.placements()[m];
    const auto mesh_dim = static_cast<int64_t>(m);
    if (placement.is_partial() && !stays(from, to, m)) {
      rules.resolved.push_back(mesh_dim);
      if (placement.op == Op::avg) {
        rules.divisor *= from.mesh().size(mesh_dim);
      } else {
        rules.op = placement.op;
      }
    } else if (!placement.is_shard()) {
      rules.fixed.push_back(mesh_dim);
    }
  }
  return rules;
}

std::vector<int64_t> ExchangeRules::home_of(const Layout& from, const Layout& to, int64_t position) const {
  const Mesh& mesh = from.mesh();
  if (is_same_mesh) return mesh.coordinate_at(position);
  const int64_t rank = to.mesh().ranks()[static_cast<size_t>(position)];
  if (const auto own = mesh.position_of(rank)) return mesh.coordinate_at(*own);
  std::vector<int64_t> home(static_cast<size_t>(mesh.ndim()), 0);
  int64_t number = position;
  for (size_t i = fixed.size(); i-- > 0;) {
    home[static_cast<size_t>(fixed[i])] = number % mesh.size(fixed[i]);
    number /= mesh.size(fixed[i]);
  }
  return home;
}

}  // namespace shardway
