// Collectives of plain memory between ranks of several hosts: through memory inside a host, by messages
// between hosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/courier.h"
#include "plan/hosts/host_map.h"
#include "plan/hosts/two_levels.h"
#include "shardway/message_engine.h"
#include "shm/board/subject.h"
#include "shm/group/hosts.h"
#include "shm/kernels/reduce.h"
#include "shm/memory/kept.h"

namespace shardway {

// What a call moves: elements in a row. Input and output do not overlap, unless a combination ends in the
// input itself.
struct SpanMemory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t element_bytes = 1;
  std::optional<shm::Combine> combine = std::nullopt;  // of elements that meet, among all ranks
};

// Calls are collective, made by one thread at a time, in the same order on every rank. They throw
// shm::PeerLost if a rank is lost; then every later call does. Addends are combined as the two levels of
// tensors do it: host by host.
class TwoLevelSpans {
 public:
  TwoLevelSpans(shm::HostGroups groups, std::shared_ptr<MessageEngine> engine,
                std::chrono::milliseconds timeout);
  ~TwoLevelSpans();
  TwoLevelSpans(const TwoLevelSpans&) = delete;
  TwoLevelSpans& operator=(const TwoLevelSpans&) = delete;

  int64_t rank() const { return courier_.rank(); }
  int64_t size() const { return courier_.size(); }
  const HostMap& hosts() const { return hosts_; }
  std::chrono::milliseconds timeout() const { return courier_.timeout(); }

  // Returns once all ranks have come. If their subjects differ, throws the same shm::Disagreement on every
  // rank.
  void meet(const shm::Subject& subject);

  // A meeting, then the moves of a route whose shapes have one dim. Every rank of a host knows the routes of
  // the others there.
  using RouteOf = std::function<Route(int64_t rank)>;
  void run(const RouteOf& route_of, const SpanMemory& memory, const shm::Subject& subject);

  // The same for routes that run one after another.
  struct Leg {
    RouteOf route_of = {};
    SpanMemory memory = {};
  };
  void run(const std::vector<Leg>& legs, const shm::Subject& subject);

  // The same for an all-to-all, whose sizes the ranks of a host tell one another first.
  void run_all_to_all(const AllToAllSizes& sizes, const SpanMemory& memory, const shm::Subject& subject);

 private:
  class Run;

  // A rank that fails in one level tells those who wait for it in the other.
  void guarded(const std::function<void()>& body);
  void inside(const std::function<void()>& body);

  // Waits for messages; those who wait for this rank inside the host can see it.
  using Errands = std::deque<Courier::Errand>;
  void finish(Errands& errands);

  void compare(const shm::Subject& subject);
  std::vector<std::byte> gathered(std::span<const std::byte> mine, const std::vector<int64_t>& sizes);
  void move(const RouteOf& route_of, const SpanMemory& memory, const shm::Subject& subject);

  HostMap hosts_;
  std::shared_ptr<shm::SharedGroup> own_;  // of the ranks of this host; null if this rank is alone
  Courier courier_;
  std::vector<int64_t> mates_;
  shm::Kept aside_;
  shm::Kept sums_;
  shm::Kept crossed_;
};

}  // namespace shardway
