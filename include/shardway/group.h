// The ranks that a collective spans.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardway/join.h"
#include "shardway/message_engine.h"
#include "shardway/route.h"

namespace c10d {
class ProcessGroup;
}

namespace [[gnu::visibility("default")]] shardway {

class Transport;

// A handle to a group of ranks, cheap to copy. One thread at a time may use a Group, and all ranks call its
// collectives in the same order.
class Group {
 public:
  // The group of a call that names none: the world that this program has joined, while the program holds
  // what join returned. If there is no such world, there is no group and every op returns its input; the
  // first op that does so while WORLD_SIZE in the environment is above 1 warns. If there are several worlds,
  // every op throws c10::ValueError.
  Group();
  Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group);

  // Takes the ranks' global numbers too, for a process group that cannot tell them itself.
  Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int64_t> global_ranks);
  explicit Group(std::shared_ptr<Transport> transport);

  // No group at all, whatever was joined.
  static Group alone();

  // Returns this group. If it was default-constructed while no world, or more than one, was joined, returns
  // what Group() means now.
  Group now() const { return doubt_ == Doubt::none ? *this : Group(); }

  // The c10d group that torch.distributed registered under this name.
  static Group named(const std::string& name);

  // Whether there is more than one rank, so that calls communicate.
  bool distributed() const { return transport_ != nullptr && size_ > 1; }
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  // The numbers by which meshes know the ranks: torch's global ranks, indexed by rank of the group.
  std::vector<int64_t> global_ranks() const;

  // Returns a group on shared memory of the ranks that gave the same color, ordered by key and, if keys are
  // equal, by their rank here. Collective over this group. Throws c10::ValueError, on every rank, if a color
  // is negative or if ranks of one color share no host.
  Group split(int64_t color, int64_t key = 0) const;

  Transport& transport() const;  // without a group: one that moves only this rank's own boxes

  // An op calls this before it begins: if it is unclear which ranks are meant, throws or warns in the op's
  // name.
  void check_meant(const char* op) const {
    if (doubt_ != Doubt::none) tell_doubt(op);
  }

 private:
  enum class Doubt : uint8_t { none, nothing_joined, several_joined };
  void tell_doubt(const char* op) const;

  std::shared_ptr<Transport> transport_;
  std::vector<int64_t> global_ranks_;  // empty: the transport knows them
  int64_t rank_ = 0;
  int64_t size_ = 1;
  Doubt doubt_ = Doubt::none;
};

// Joins the ranks of this program, which are processes of one host, to a group on shared memory for CPU
// tensors. Collective. Throws c10::ValueError if the options or the environment are invalid or the ranks
// share no host, c10::DistBackendError if a rank does not come. Across hosts, and for CUDA tensors, make a
// Group of a c10d process group instead. One thread at a time may call it. Calls that name no group use the
// joined group while the program holds it.
[[nodiscard]] Group join(const JoinOptions& options = {});

// Runs `body` on `ranks` threads of this process, each with its own rank of one group: for tests and
// examples, in which a rank is a thread. Rethrows the first exception after all threads have ended.
void run_as_threads(int64_t ranks, const std::function<void(const Group&)>& body);

// Runs a route that the caller made. Collective over `group`; every rank passes its own part of the route.
// `out` is written where the route's pulls land and nowhere else. Not differentiable. `x` and `out`
// have the route's shapes, one dtype, one device, and do not overlap.
void execute(const Route& route, const at::Tensor& x, const at::Tensor& out, const Group& group);

// Joins the ranks of the engine to a group for CPU tensors: through shared memory inside a host, by the
// engine between hosts. Collective. Throws as join does. `timeout` is how long a rank waits for another, now
// and in every call.
[[nodiscard]] Group join_hosts(const EngineMaker& make,
                               std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace shardway
