// Who takes part in a transfer, and what moves. Every rank of every role finds the same from the declarations
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "link/talk/claim.h"
#include "plan/text/json.h"
#include "shardway/layout.h"

namespace shardway::link {

// One tensor on its way to one role.
struct ModelMove {
  std::string name;
  std::string role;
  Layout before;  // in ranks of the joint group, and in the source's dtype
  Layout after;
  int64_t portion;          // 0, or the number of the exchange that brings it to a Load
  bool is_on_gpus = false;  // on all ranks that have a part before or after
};

struct RosterRole {
  std::string name;
  int64_t size = 0;
  int64_t first_rank = 0;
};

// Ranks of the joint group are numbered role by role, the publisher first.
struct [[gnu::visibility("default")]] Roster {
  std::string meeting;  // where the ranks meet
  std::vector<RosterRole> roles;
  std::vector<ModelMove> moves;
  int64_t ranks = 0;

  // Throws NotOurs if it cannot be.
  static Roster read(const Json& said);
  static Roster parse(const std::string& text);  // of the same as text

  // The rank in the joint group. Throws NotOurs if it is not among them.
  int64_t rank_of(const Claim& claim) const;
};

}  // namespace shardway::link
