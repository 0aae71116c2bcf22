// A model that moves from one job to another, again and again.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shardway/layout.h"
#include "shardway/mesh_tensor.h"

namespace shardway::link {
class LinkedJob;
struct SourceState;
struct TargetState;
}  // namespace shardway::link

namespace [[gnu::visibility("default")]] shardway {

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

  std::string name;
  at::Tensor local;
  std::optional<Layout> layout = std::nullopt;  // left out: the tensor is whole
  std::optional<int64_t> owner = std::nullopt;  // the rank whose part it is, if it is known
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

// What this rank publishes on a link.
class LinkSource {
 public:
  // Sends the tensors as they are now to all roles that are subscribed when it begins, at least one, and
  // waits for them. Returns the version that they have: 1, 2, … Collective over the role. Throws
  // c10::DistBackendError if a subscriber was lost: the version has not arrived everywhere, and the next send
  // goes to who is there.
  int64_t send();

  // The same with other tensors of the same names and layouts, for this send and those after it.
  int64_t send(const std::vector<NamedTensor>& tensors);

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
  // Closes. One that an exception destroys leaves as if this process had died: the others are told that it is
  // lost.
  ~JobLink();

  const std::string& role() const;
  int64_t rank() const;  // in the role
  int64_t size() const;  // of the role

  // Declares what this role sends. Ranks may name different tensors: their union is the model. Collective
  // over the role. Throws c10::ValueError on every rank with every difference from what other roles have
  // subscribed to. The tensors are read where they lie when they are sent.
  LinkSource publish(const std::vector<NamedTensor>& tensors);

  // Declares where what another role publishes is to lie: any views, which are written in place. Waits until
  // a model is published. Collective over the role. Throws c10::ValueError on every rank of both roles with
  // every difference: names, shapes, dtypes unless `cast` allows another one, destinations that overlap.
  LinkTarget subscribe(const std::vector<NamedTensor>& destinations, const SubscribeOptions& options = {});

  // What a version moves: the bytes of each pair of ranks, the busiest rank, the least that has to move, the
  // memory here. Throws c10::ValueError before the first version, and after a loss.
  std::string explain() const;

  // Leaves. The other roles are told.
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
