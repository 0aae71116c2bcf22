// The moves of several routes through shared memory, made again and again.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shm/calls/contiguous.h"
#include "transport/common/repeated_moves.h"
#include "transport/shm/box_copies.h"
#include "transport/shm/list_call.h"
#include "transport/shm/shm_engine.h"
#include "transport/shm/shm_part.h"

namespace shardway {

// Keeps the buffers of small routes, the copies to and from them, and the parts of a call.
class RepeatedList : public RepeatedMoves {
 public:
  RepeatedList(std::vector<RouteCall> calls, const Transport& transport, std::shared_ptr<ShmEngine> engine);

  void run(const Subject& subject) override;

 private:
  void keep_landing(const RouteCall& call, std::span<const ListCall::PackedBox> pulls);

  std::vector<RouteCall> calls_;
  ListCall list_;
  std::shared_ptr<ShmEngine> engine_;
  BoxCopies packing_;
  BoxCopies unpacking_;
  std::deque<ShmPart> combined_;             // small routes whose pulls are combined, once these have arrived
  std::optional<shm::ContiguousCall> runs_;  // in place of the only route, if it is one of small runs
  std::optional<ListedRoutes> routes_;       // else
};

}  // namespace shardway
