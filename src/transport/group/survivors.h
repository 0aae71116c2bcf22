// The ranks that are left of a process group, while they have no process group of their own yet.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shm/group/group.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

class ShmEngine;

// They share memory. Every rank of the new group holds one, and all make the same calls in the same order.
class [[gnu::visibility("default")]] Survivors {
 public:
  // Shrinks the group: see SharedGroup::shrink. Collective among the ranks that live. Nothing if the ranks
  // share no memory, or have made no call yet by which they would know. Throws c10::DistBackendError.
  static std::optional<Survivors> of(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                     std::optional<std::chrono::milliseconds> timeout);

  // The same if one of the survivors is lost.
  Survivors shrunk(std::optional<std::chrono::milliseconds> timeout) const;

  int64_t rank() const;
  uint64_t id() const;  // no other group's
  // Ranks of the process group that was shrunk first, by rank.
  const std::vector<int64_t>& members() const { return members_; }

  // Collective. Returns every rank's text, of which it keeps the first 1024 bytes. Throws
  // c10::DistBackendError if a rank is lost.
  std::vector<std::string> told(const std::string& mine) const;

  // Lets the process group of these ranks use their memory from its first call on.
  void serve(const c10::intrusive_ptr<c10d::ProcessGroup>& group) const;
  const std::shared_ptr<ShmEngine>& engine() const { return engine_; }

 private:
  Survivors(shm::Subgroup part, const std::vector<int64_t>& ranks);

  std::shared_ptr<ShmEngine> engine_;
  std::vector<int64_t> members_;
};

// For groups whose ranks do not all share memory, and so agree by other means. Both are local. The first
// tells all ranks that the group is over, where its engine can. The second returns those that this rank knows
// to have died or left: ranks of its host.
[[gnu::visibility("default")]] void end_for_shrink(const c10::intrusive_ptr<c10d::ProcessGroup>& group);
[[gnu::visibility("default")]] std::vector<int64_t> gone_ranks(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace shardway
