// The rules of a direct exchange between two layouts: what is allowed, and which replica a rank pulls from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

// The roles of the source's mesh dims in a direct exchange.
//
// On dims that shard, an element's position in the tensor decides which coordinate holds it. On `resolved`
// dims every coordinate holds an addend, and a rank pulls them all. On `fixed` dims (replicated, or a Partial
// that stays) a rank pulls from one coordinate, that of its home.
struct ExchangeRules {
  bool is_same_mesh = true;
  std::vector<int64_t> resolved = {};
  std::vector<int64_t> fixed = {};
  Op op = Op::sum;
  int64_t divisor = 1;

  // The coordinate in the source's mesh that the target's rank at `position` pulls from. Only its fixed dims
  // matter. It is the rank's own coordinate if the rank is in that mesh, else replica number `position`
  // modulo the number of replicas.
  std::vector<int64_t> home_of(const Layout& from, const Layout& to, int64_t position) const;
};

// Why there is no way from one to the other: shapes or dtypes differ, or addends would have to be made.
std::optional<std::string> why_not(const Layout& from, const Layout& to);

// Whether addends would have to be made.
bool makes_addends(const Layout& from, const Layout& to);

// Throws std::invalid_argument with why_not.
ExchangeRules exchange_rules_between(const Layout& from, const Layout& to);

}  // namespace shardway
