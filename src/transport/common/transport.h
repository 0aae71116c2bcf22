// What moves the boxes of a route between the ranks of a group.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shardway/route.h"
#include "shm/board/subject.h"

namespace shardway {

// What a call is about. Ranks that share memory compare subjects in every call; if two differ, all ranks
// throw the same c10::ValueError. Between other ranks, messages of different subjects do not match, and the
// call ends in the timeout.
using shm::Subject;

// A route under way. It holds the tensors that it needs. A transfer that is dropped still finishes.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Blocks until everything has landed in the output and the input is free again.
  virtual void finish() = 0;

  // Whether finish() would return, or throw, without waiting for another rank. Does not wait itself. A thread
  // that asks must not do so while another is in finish().
  virtual bool is_over() = 0;
};

// Of a transport that makes all moves before start() returns.
class FinishedTransfer : public Transfer {
 public:
  void finish() override {}
  bool is_over() override { return true; }
};

// A whole call that runs asynchronously. It goes on if this object is dropped.
class Posted {
 public:
  virtual ~Posted() = default;

  // Blocks until the call is over; throws what it threw.
  virtual void wait() = 0;

  // Whether the call is over. Does not wait.
  virtual bool is_over() = 0;
};

// Inputs of other ranks that are here already, by rank; undefined where they are not. If every other rank
// already has this rank's input, this rank defines its own entry too, and sends nothing.
using KnownInputs = std::vector<at::Tensor>;

inline bool is_known(const KnownInputs& known, int64_t rank) {
  return !known.empty() && known[static_cast<size_t>(rank)].defined();
}

// Whether nothing has to move between ranks.
inline bool is_all_known(const KnownInputs& known, int64_t ranks) {
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (!is_known(known, rank)) return false;
  }
  return true;
}

// The result of an exchange of blocks. Each block lies at the beginning of its rank's row.
struct Blocks {
  at::Tensor rows = {};
  c10::SmallVector<int64_t, 8> bytes = {};  // of each block; the whole row if the engine reports no lengths
  uint64_t number = 0;                      // of the exchange among the group's calls; the same on every rank
};

// The moves of a route from `x` into `out`. Both have the route's shapes and are on one device.
struct RouteCall {
  const Route* route = nullptr;
  at::Tensor x = {};
  at::Tensor out = {};
  std::shared_ptr<const void> event = {};  // in a meeting: the thread that made the moves drops it
  // In a list. Both are the same on every rank.
  bool is_small = false;         // so small that it is packed with others
  bool offsets_unknown = false;  // a rank that pulls a box does not know where it lies; at most one route
};

// What a rank brings to a meeting: its block and its pushes. The block is 1-d bytes on the CPU, at most
// `row_bytes`, which is the same on all ranks. The pushes are the boxes of `x` that others will take, as far
// as the rank knows them before it has heard the others.
struct Opening {
  at::Tensor block = {};
  int64_t row_bytes = 0;
  at::Tensor x = {};
  Moves pushes = {};
  const RouteCall* known = nullptr;  // all moves of x, if known before the meeting: always for an all-reduce
};

// Returns the moves that follow from what all ranks said, if there are any. If it throws a c10::ValueError,
// it does so on every rank.
using Decide = std::function<std::optional<RouteCall>(Blocks)>;

class KeptCalls;

// All calls are collective unless said otherwise. They are made by one thread at a time, in the same order on
// every rank. A peer's death or a timeout throws a c10::DistBackendError that names the peer.
class [[gnu::visibility("default")]] Transport {
 public:
  virtual ~Transport() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Local: the numbers by which the job knows the ranks, which are torch's global ranks. Empty means 0, 1, …
  virtual std::vector<int64_t> global_ranks() { return {}; }

  // Local: how long a rank waits for another.
  virtual std::chrono::milliseconds timeout() { return std::chrono::minutes(30); }

  // Local: why tensors on this device cannot be moved; none if they can.
  virtual std::optional<std::string> refuses(c10::Device device) = 0;

  // Local, the same on every rank: how large a payload is worth sending in a block.
  virtual int64_t slot_bytes() = 0;

  // Local, the same on every rank: whether a block costs so little that every call of such a tensor exchanges
  // one. `x` is undefined on a rank that has no tensor.
  virtual bool compares_every_call(const at::Tensor& /*x*/) { return false; }

  // Local, the same on every rank: whether transfers make no progress on their own, so that a call has to be
  // posted to run asynchronously.
  virtual bool has_thread() { return false; }

  // Local: runs a whole call on a thread of the transport, after the calls made before it. Later calls wait
  // for it.
  virtual std::unique_ptr<Posted> post(std::function<void()> call);

  // Local, the same on every rank: whether the engine has a collective of its own that does what this route
  // does.
  virtual bool has_own(const Route& /*route*/, const at::Tensor& /*x*/) { return false; }

  // Local, the same on every rank: whether each rank combines all inputs of an all-reduce of `x` in one pass,
  // instead of combining a share that the others then collect. Without a tensor: of any that is on the CPU.
  virtual bool combines_whole(const at::Tensor& /*x*/) { return false; }

  // Local, the same on every rank: whether a call of such a tensor is one meeting. `x` is undefined on a rank
  // that has no tensor.
  virtual bool moves_in_meeting(const at::Tensor& /*x*/) { return false; }

  // Local: where calls of tensors on the CPU are kept. Null if none is: a call is not one meeting, or the
  // ranks have yet to find out how they move.
  virtual KeptCalls* kept_calls() { return nullptr; }

  // Exchanges the blocks, then makes the moves that `decide` returns, from the tensors in the openings. Only
  // if moves_in_meeting.
  virtual void meet(const Opening& opening, const Subject& subject, const Decide& decide);

  // Returns every rank's block of bytes (1-d, on the CPU). Blocks may differ in length, up to `row_bytes`,
  // which is the same on all ranks.
  virtual Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) = 0;

  // Starts the moves of a route from `x` into `out`. Both have the route's shapes and are on one device.
  virtual std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                          const KnownInputs& known, const Subject& subject) = 0;

  // Starts the moves of several routes. Every rank passes them in the same order, and they must live until
  // the transfer is over. Ranks that share memory move them together; others start each route on its own. The
  // transports of shared memory and of process groups pack small routes.
  virtual std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject);
};

}  // namespace shardway
