// What tests ask of the moves of a route.
#pragma once

#include <algorithm>
#include <iterator>

#include "shardway/route.h"

namespace shardway::testing {

inline Moves with_peer(const Moves& moves, int64_t peer) {
  Moves found;
  std::copy_if(moves.begin(), moves.end(), std::back_inserter(found),
               [&](const Move& move) { return move.peer == peer; });
  return found;
}

inline int64_t elements_to_others(const Moves& moves, int64_t rank) {
  int64_t elements = 0;
  for (const Move& move : moves) elements += move.peer == rank ? 0 : move.mine.volume();
  return elements;
}

}  // namespace shardway::testing
