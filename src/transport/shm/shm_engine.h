// The shared memory of a group, used by its callers and by a thread of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "shardway/route.h"
#include "shm/group/group.h"
#include "transport/common/call_queue.h"
#include "transport/common/transport.h"
#include "transport/shm/shm_errors.h"
#include "transport/shm/shm_part.h"

namespace shardway {

// Routes that shared memory moves together, ready to be moved: as many as a call of the group takes at once,
// and each all-reduce on its own. The calls must outlive this object.
class ListedRoutes {
 public:
  explicit ListedRoutes(std::span<const RouteCall> calls);

  void run(shm::SharedGroup& group, const Subject& subject) const;

 private:
  std::vector<const RouteCall*> all_reduces_;
  std::list<ShmPart> parts_;  // takes no memory if all are all-reduces
  std::vector<shm::PartList> meetings_;
};

// Calls run in the order in which they are made: on the caller's thread or, after posted calls, on the
// engine's. Errors are thrown as c10 errors.
class ShmEngine {
 public:
  explicit ShmEngine(std::shared_ptr<shm::SharedGroup> group, PartOfGroup part = {});

  // How large a payload is worth sending in a block.
  static int64_t slot_bytes();

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject);
  void meet(const Opening& opening, const Subject& subject, const Decide& decide);
  void run(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known,
           const Subject& subject);

  // Several routes at once.
  void run_all(const std::vector<RouteCall>& calls, const Subject& subject);

  // Local: runs a route whose inputs are all here.
  static void run_alone(const Route& route, const at::Tensor& x, const at::Tensor& out,
                        const KnownInputs& known);

  std::unique_ptr<Posted> post(std::function<void()> call);

  bool is_own_thread() const { return queue_.is_own_thread(); }

  // Runs a call on the shared group itself in its turn.
  void in_turn(const std::function<void(shm::SharedGroup&)>& call);

  shm::SharedGroup& group() const { return *group_; }

  // Collective among the ranks that live: see SharedGroup. Calls under way, those of the engine's thread too,
  // end with an error first.
  shm::Subgroup shrink(std::optional<std::chrono::milliseconds> timeout);

 private:
  Blocks fresh_blocks(int64_t row_bytes);
  at::Tensor fresh_rows(int64_t row_bytes);

  std::shared_ptr<shm::SharedGroup> group_;
  PartOfGroup part_;
  std::recursive_mutex mutex_;  // one thread at a time, even if callers use several
  CallQueue queue_;
  std::mutex rows_mutex_;
  at::Tensor rows_;  // those of the last blocks, kept for the next
};

}  // namespace shardway
