// A model that moves from one job to another, again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardway/layout.h"
#include "shardway/mesh_tensor.h"

namespace shardway::link {
class LinkedJob;
class SourceState;
struct TargetState;
}  // namespace shardway::link

namespace [[gnu::visibility("default")]] shardway {

// A destination that is a function: to quantise, to prepack, to hand over to an engine. In receive each
// rank's piece of the tensor is put together in a buffer of the link and handed over, name by name in the
// order in which the role declares them, in the thread that calls receive and without gradients. The tensor
// is valid during the call only: what must stay has to be copied. A rank outside the layout's mesh is handed
// nothing.
//
// If the function throws, receive throws that exception on this rank, after the version has come. The role's
// other ranks and the publisher throw a c10::DistBackendError that quotes it.
struct Load {
  Layout layout;  // which piece each rank of the role gets; the mesh has ranks of the role
  DType dtype;    // of what is handed over; if it is not the publisher's, subscribe needs .cast = true
  std::function<void(const std::string& name, const at::Tensor& piece)> function;

  // Of the buffer. Pieces of a rank that do not fit into it together come one portion after the other; one
  // that does not fit alone is an error of subscribe. A dtype that changes needs the piece twice. Of Loads
  // that come together the least counts.
  int64_t max_bytes = int64_t{512} << 20;
};

// A tensor of a model, by its name on the link.
struct NamedTensor {
  // Every rank that names it has the whole.
  NamedTensor(std::string name, at::Tensor whole) : name(std::move(name)), local(std::move(whole)) {}

  // The mesh has ranks of the role.
  NamedTensor(std::string name, const MeshTensor& tensor)
      : name(std::move(name)), local(tensor.local()), layout(tensor.layout()), owner(tensor.rank()) {}

  // The same for a program without a group: the part is that of this process's rank in the role, undefined
  // outside the mesh.
  NamedTensor(std::string name, at::Tensor part, Layout layout)
      : name(std::move(name)), local(std::move(part)), layout(std::move(layout)) {}

  // A destination only.
  NamedTensor(std::string name, Load load) : name(std::move(name)), load(std::move(load)) {}

  std::string name;
  at::Tensor local;
  std::optional<Layout> layout = std::nullopt;  // left out: the tensor is whole
  std::optional<int64_t> owner = std::nullopt;  // the rank whose part it is, if it is known
  std::optional<Load> load = std::nullopt;
};

struct ConnectOptions {
  std::string address;                               // such as tcp://10.0.0.1:29700
  std::string role;                                  // the name of the job
  std::optional<int64_t> rank = std::nullopt;        // by default RANK, else that in the joined world
  std::optional<int64_t> size = std::nullopt;        // by default WORLD_SIZE, else that of the joined world
  std::optional<std::string> secret = std::nullopt;  // by default SHARDWAY_LINK_SECRET
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

struct SubscribeOptions {
  bool cast = false;  // dtypes may differ: a value is rounded once, as it is written
};

struct SendOptions {
  // If false, send returns when the tensors are copied into shared memory, and a thread of the link sends
  // them. Two versions are held, and a third send waits until the first has arrived. What goes wrong is
  // thrown by the next send, or by close. The number that send returns is the one that the version will have,
  // unless a subscriber comes back that knows a higher one.
  bool wait = true;
};

// What this rank publishes on a link.
class LinkSource {
 public:
  // Sends the tensors as they are now to all roles that are subscribed when it begins, at least one, and
  // waits for them. Returns the version that they have: 1, 2, … Collective over the role. Throws
  // c10::DistBackendError if a subscriber was lost: the version has not arrived everywhere, and the next send
  // goes to who is there.
  int64_t send(const SendOptions& options = {});

  // The same with other tensors of the same names and layouts, for this send and those after it.
  int64_t send(const std::vector<NamedTensor>& tensors, const SendOptions& options = {});

  int64_t version() const;      // of the last one that has arrived
  std::string explain() const;  // as JobLink's

  explicit LinkSource(std::shared_ptr<link::SourceState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<link::SourceState> state_;
};

// Where this rank wants what another role publishes.
class LinkTarget {
 public:
  // Waits for the next version, which is then in the destinations of all ranks of this role. Returns its
  // number. Collective over the role. Throws c10::DistBackendError if the publisher or a rank on the way was
  // lost. The next call waits for the next version, of a publisher that may have been started again.
  int64_t receive();

  int64_t version() const;  // of the last complete one here; 0 before the first

  // Why the destinations must not be used until the next version has come; nothing if they may be.
  std::optional<std::string> incomplete() const;

  std::string explain() const;  // as JobLink's

  explicit LinkTarget(std::shared_ptr<link::TargetState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<link::TargetState> state_;
};

// Ranks of several jobs that hand tensors to one another. One thread at a time may use a link with its
// sources and targets. A child of fork has to connect itself.
class JobLink {
 public:
  JobLink(JobLink&&) noexcept = default;
  JobLink& operator=(JobLink&& other) noexcept;
  JobLink(const JobLink&) = delete;
  JobLink& operator=(const JobLink&) = delete;
  // Closes, and is silent about what went wrong. One that an exception destroys leaves as if this process had
  // died: the others are told that it is lost.
  ~JobLink();

  const std::string& role() const;
  int64_t rank() const;  // in the role
  int64_t size() const;  // of the role

  // Declares what this role sends. Ranks may name different tensors: their union is the model. Collective
  // over the role. Throws c10::ValueError on every rank with every difference from what other roles have
  // subscribed to. The tensors are read where they lie when they are sent.
  LinkSource publish(const std::vector<NamedTensor>& tensors);

  // Declares where what another role publishes is to lie: any views, which are written in place, or
  // functions. Waits until a model is published. Collective over the role. Throws c10::ValueError on every
  // rank of both roles with every difference: names, shapes, dtypes unless `cast` allows another one,
  // destinations that overlap.
  LinkTarget subscribe(const std::vector<NamedTensor>& destinations, const SubscribeOptions& options = {});

  // What a version moves: the bytes of each pair of ranks, the busiest rank, the least that has to move, the
  // memory here. Throws c10::ValueError before the first version, and after a loss. Waits until what was sent
  // without waiting has arrived.
  std::string explain() const;

  // Leaves. The other roles are told. What was sent without waiting has arrived then, or this throws why not.
  void close();

  explicit JobLink(std::shared_ptr<link::LinkedJob> job) : job_(std::move(job)) {}

 private:
  std::shared_ptr<link::LinkedJob> job_;
  int exceptions_ = std::uncaught_exceptions();  // on their way when it was made
};

// Joins this process to the link at an address, as a rank of a role: a job, or a replica of one. Collective
// over the role, whose ranks are started in any order. The first rank 0 that comes listens at the address, if
// its host has it; a job in C++ or in Python. All ranks of all jobs are on one host.
//
// Throws c10::ValueError if an argument is invalid, or if another process has this rank of the role;
// c10::DistBackendError if the others did not come within the timeout, which limits every call's wait.
[[nodiscard]] JobLink connect(const ConnectOptions& options);

}  // namespace shardway
