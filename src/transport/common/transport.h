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

// What a call is about. Ranks that share memory compare it in every call, and all throw the same
// c10::ValueError where two differ; between others messages of another subject do not meet, which ends in the
// timeout.
using shm::Subject;

// A route under way. It holds the tensors that it needs; one that is dropped finishes by itself.
class Transfer {
 public:
  virtual ~Transfer() = default;

  // Blocks until everything has landed in the output and the input is free again.
  virtual void finish() = 0;
};

// A whole call that runs by itself. One that is dropped goes on.
class Posted {
 public:
  virtual ~Posted() = default;

  // Blocks until the call is over; throws what it threw.
  virtual void wait() = 0;
};

// Inputs of other ranks that are here already, by rank; undefined where they are not. A rank whose own
// input is here on every other rank defines its own entry too: then it sends nothing.
using KnownInputs = std::vector<at::Tensor>;

inline bool is_known(const KnownInputs& known, int64_t rank) {
  return !known.empty() && known[static_cast<size_t>(rank)].defined();
}

// What came of an exchange of blocks, each at the beginning of its rank's row.
struct Blocks {
  at::Tensor rows = {};
  c10::SmallVector<int64_t, 8> bytes = {};  // of each block; the whole row where an engine does not tell
  uint64_t number = 0;                      // of the exchange among the group's calls, the same on every rank
};

// The moves of a route from `x` into `out`, which have its shapes and are on one device.
struct RouteCall {
  const Route* route = nullptr;
  at::Tensor x = {};
  at::Tensor out = {};
  std::shared_ptr<const void> event = {};  // in a meeting: dropped by the thread that has made the moves
  // In a list, the same on every rank.
  bool is_small = false;         // so small that it is packed with others
  bool offsets_unknown = false;  // who pulls a box does not know where it lies; of one route at most
};

// What a rank brings to a meeting: its block (1-d bytes on the CPU), up to `row_bytes`, which is the same on
// all ranks, and of its tensor the boxes that others will take, so far as it knows them before it has heard
// anybody.
struct Opening {
  at::Tensor block = {};
  int64_t row_bytes = 0;
  at::Tensor x = {};
  Moves pushes = {};
  const RouteCall* all_reduce = nullptr;  // of x, in place of pushes: it is known whole before the meeting
};

// The moves that follow from what all ranks said, if any do. What it throws as a c10::ValueError it throws on
// every rank.
using Decide = std::function<std::optional<RouteCall>(Blocks)>;

// All calls are collective unless said otherwise, made by one thread at a time, in the same order on
// every rank. A peer's death or a timeout is a c10::DistBackendError that names the peer.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Local: the numbers that the job knows the ranks by, torch's global ranks; empty: 0, 1, …
  virtual std::vector<int64_t> global_ranks() { return {}; }

  // Local: how long a rank waits for another.
  virtual std::chrono::milliseconds timeout() { return std::chrono::minutes(30); }

  // Local: why tensors of this device cannot be moved, if they cannot.
  virtual std::optional<std::string> refuses(c10::Device device) = 0;

  // Local, the same on every rank: how large a payload is worth sending in a block.
  virtual int64_t slot_bytes() = 0;

  // Local, the same on every rank: a block costs so little that every call of such a tensor exchanges one.
  // `x` is undefined where a rank has none to show.
  virtual bool compares_every_call(const at::Tensor& /*x*/) { return false; }

  // Local, the same on every rank: a transfer makes no way of its own, so that a call which is to must be
  // posted.
  virtual bool has_thread() { return false; }

  // Local: runs a whole call on a thread of the transport, after those that were made before it; later calls
  // wait for it.
  virtual std::unique_ptr<Posted> post(std::function<void()> call);

  // Local, the same on every rank: the engine has a collective of its own that does what this route does.
  virtual bool has_own(const Route& /*route*/, const at::Tensor& /*x*/) { return false; }

  // Local, the same on every rank: each combines all inputs in one pass, of whatever size, rather than a
  // share that the others then collect.
  virtual bool combines_whole() { return false; }

  // Local, the same on every rank: a call of such a tensor is one meeting. `x` is undefined where a rank has
  // none to show.
  virtual bool moves_in_meeting(const at::Tensor& /*x*/) { return false; }

  // Exchanges the blocks, and makes the moves that follow from them, from what the ranks have brought. Only
  // where moves_in_meeting.
  virtual void meet(const Opening& opening, const Subject& subject, const Decide& decide);

  // Every rank's block of bytes (1-d, on the CPU). Blocks may differ in length, up to `row_bytes`, which is
  // the same on all ranks.
  virtual Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) = 0;

  // Starts the moves of a route from `x` into `out`. Both have the route's shapes and are on one device.
  virtual std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                          const KnownInputs& known, const Subject& subject) = 0;

  // Starts the moves of several routes, which every rank brings in the same order; they live until the
  // transfer is over. At once where the ranks share memory; else each by itself, small ones packed.
  virtual std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject);
};

}  // namespace shardway
