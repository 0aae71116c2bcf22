// The ranks that a collective spans.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shardway/join.h"
#include "shardway/route.h"

namespace c10d {
class ProcessGroup;
}

namespace [[gnu::visibility("default")]] shardway {

class Transport;

// A handle of a group of ranks, cheap to copy. A Group may be used by one thread at a time, and all ranks
// call its collectives in the same order.
class Group {
 public:
  // What a call means that says no group: the world that this program has joined, as long as it holds what
  // join gave. Without one it is no group at all, and every op gives its input back; the first that does so
  // with WORLD_SIZE above 1 in the environment warns. With several worlds every op throws c10::ValueError.
  Group();
  Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group);

  // With the ranks' global numbers, for a process group that cannot tell them itself.
  Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int64_t> global_ranks);
  explicit Group(std::shared_ptr<Transport> transport);

  // No group at all, whatever was joined.
  static Group alone();

  // This group, but of a default-made one what it means at this moment.
  Group now() const { return doubt_ == Doubt::none ? *this : Group(); }

  // The c10d group that torch.distributed registered under this name.
  static Group named(const std::string& name);

  // More than one rank: calls communicate.
  bool distributed() const { return transport_ != nullptr && size_ > 1; }
  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }

  // The numbers that meshes know the ranks by, torch's global ranks, by rank of the group.
  std::vector<int64_t> global_ranks() const;

  // The ranks that gave the same color, ordered by key and, where keys are equal, by their rank here: a group
  // on shared memory. Collective over this group. Throws c10::ValueError, on every rank, for a negative color
  // and where ranks of one color share no host.
  Group split(int64_t color, int64_t key = 0) const;

  Transport& transport() const;  // one that moves this rank's own boxes where there is no group

  // For an op, before it begins: throws or warns, in its name, where it is in doubt which ranks are meant.
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

// The ranks of this program, processes of one host, as a group on shared memory for CPU tensors: collective.
// Throws c10::ValueError where the options or the environment make no sense or the ranks share no host,
// c10::DistBackendError where a rank does not come. Across hosts, and for CUDA tensors, make a Group of a
// c10d process group instead. One thread at a time may call it. Calls that say no group use what was joined,
// for as long as the program holds it.
[[nodiscard]] Group join(const JoinOptions& options = {});

// Runs `body` on `ranks` threads of this process, each with its own rank of one group: for tests and
// examples, in which a rank is a thread. Gives the first exception on, after all threads have ended.
void run_as_threads(int64_t ranks, const std::function<void(const Group&)>& body);

// Runs a route of your own: collective over `group`, which every rank enters with its own part.
// `out` is written where the route's pulls land and nowhere else. Not differentiable. `x` and `out`
// have the route's shapes, one dtype, one device, and do not overlap.
void execute(const Route& route, const at::Tensor& x, const at::Tensor& out, const Group& group);

}  // namespace shardway
