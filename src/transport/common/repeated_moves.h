// Moves that are made again and again, from and to the same tensors.
#pragma once

#include <memory>
#include <vector>

#include "transport/common/transport.h"

namespace shardway {

class RepeatedMoves {
 public:
  virtual ~RepeatedMoves() = default;

  // Makes the moves once more. Collective. Inputs are read where they lie. When it returns, all has landed.
  virtual void run(const Subject& subject) = 0;

  // The tensors stay where they are from now on, on every rank, for as long as these moves live. Collective.
  virtual void fix(const Subject& /*subject*/) {}
};

// A transport that keeps what the moves need, so that repeating them allocates nothing.
class RepeatsMoves {
 public:
  virtual ~RepeatsMoves() = default;

  virtual std::unique_ptr<RepeatedMoves> repeat(std::vector<RouteCall> calls) = 0;
};

// The moves of several routes, ready to be made. Every rank passes the routes in the same order. They, and
// the transport, must outlive the result.
std::unique_ptr<RepeatedMoves> repeated(Transport& transport, std::vector<RouteCall> calls);

// The same for a transport that keeps nothing: every repetition is started like the first.
std::unique_ptr<RepeatedMoves> started_again(Transport& transport, std::vector<RouteCall> calls);

// Several moves, one behind the other, and what they need that nobody else owns.
std::unique_ptr<RepeatedMoves> moves_in_turn(std::vector<std::unique_ptr<RepeatedMoves>> all,
                                             std::shared_ptr<const void> held = nullptr);

}  // namespace shardway
