// What may pass from one layout straight to another, and from which of several replicas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shardway/layout.h"

namespace shardway {

// The roles of the source's mesh dims in a direct exchange.
//
// An element lies on the ranks whose coordinates its box fixes on the dims that shard. On `resolved` dims
// every rank holds an addend, and all are pulled. On `fixed` dims (replicated, or a Partial that stays) a
// rank pulls from the coordinate of its home.
struct ExchangeRules {
  bool is_same_mesh = true;
  std::vector<int64_t> resolved = {};
  std::vector<int64_t> fixed = {};
  Op op = Op::sum;
  int64_t divisor = 1;

  // The coordinate in the source's mesh that the target's rank at `position` pulls from, as far as the
  // fixed dims say: its own where it is there, else the replica of number position modulo replicas.
  std::vector<int64_t> home_of(const Layout& from, const Layout& to, int64_t position) const;
};

// Why nothing leads from one to the other: another shape or dtype, or addends that would have to be made.
std::optional<std::string> why_not(const Layout& from, const Layout& to);

// Whether the one reason is that addends would have to be made.
bool makes_addends(const Layout& from, const Layout& to);

// Throws std::invalid_argument with why_not.
ExchangeRules exchange_rules_between(const Layout& from, const Layout& to);

}  // namespace shardway
