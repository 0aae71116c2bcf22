// The group of all ranks of all jobs that take part in a transfer, and what moves in it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "link/moves/model_moves.h"
#include "link/moves/roster.h"
#include "link/moves/vote.h"
#include "link/talk/connection.h"
#include "shardway/group.h"

namespace c10d {
class Backend;
}

namespace shardway::link {

// The meetings of its ranks, their order and what is said in them are those of _link/joint.py: ranks in
// Python take part.
class JointGroup {
 public:
  // Collective over the ranks of the roster, which meet over the connection. Throws c10::DistBackendError if
  // they are on several hosts, NotOurs if a tensor moves from GPU to GPU.
  JointGroup(std::string generation, const Roster& roster, const Claim& claim,
             const std::shared_ptr<HubConnection>& meeting, std::chrono::milliseconds timeout);

  ~JointGroup();
  JointGroup(const JointGroup&) = delete;
  JointGroup& operator=(const JointGroup&) = delete;

  const std::string& generation() const { return generation_; }

  // Whether all ranks have had a version, so that they need no hub for the next.
  bool is_quick() const { return is_quick_; }

  // By the hub's word: moves what the publisher's ranks give into the destinations of the others. Every rank
  // calls it, with the same destinations each time. What goes to Loads comes last.
  void move(const SharedTensors& parts, const TensorsByName& destinations, Loader& loader, int64_t sets);

  // After a version that all ranks have, the next ones may go without the hub, unless there are Loads: the
  // hub tells the others if one fails.
  void settle() { is_quick_ = !moves_->has_portions(); }

  // Without the hub: moves this version if all ranks are willing and mean the same one; otherwise nothing is
  // moved, on any rank. Three meetings: the ranks vote, move, and say that they have moved. In a vote each
  // rank shows a word and reads those of all others. So if one rank has passed it, every rank that lives
  // passes it too: all begin or none does, and all have the version or none has.
  bool try_version(int64_t version, const SharedTensors& parts, int64_t sets, bool is_willing,
                   const std::function<void(int64_t)>& on_begin);

  // After the first version.
  std::string explain(int64_t held_bytes) const { return moves_->explain(held_bytes); }

  // Tells whoever waits for this rank here.
  void leave();

 private:
  std::string generation_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  Group group_ = Group::alone();
  std::optional<ModelMoves> moves_;
  std::optional<Vote> vote_;
  bool is_quick_ = false;
};

}  // namespace shardway::link
