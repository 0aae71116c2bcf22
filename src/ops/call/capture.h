// The moves of a call, kept so that they can be made again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ops/call/header.h"
#include "shardway/group.h"
#include "transport/common/transport.h"

namespace shardway {

// Why an input is refused.
inline constexpr const char* kNoGradient =
    "the tensor requires grad, but a prepared call has no gradient: pass it detached, or prepare the call "
    "under torch.no_grad()";

struct KeptRoute {
  Route route;
};

// One route of a call with its tensors.
struct KeptMove {
  RouteCall call = {};                         // its route is one of the capture's
  std::optional<size_t> input = std::nullopt;  // if it reads an input of the call: which
};

// Moves that come one after the other.
struct KeptRound {
  std::vector<KeptMove> alone = {};     // this rank's own, before it meets the others
  std::vector<KeptMove> together = {};  // in one exchange
};

struct KeptInput {
  at::Tensor given = {};  // the caller's
  at::Tensor read = {};   // what the moves read: the same, or a copy of a lazily computed one
  bool is_here = true;    // else `given` stands for a tensor of which this rank has no part
};

struct KeptCopy {
  size_t input = 0;
  at::Tensor out = {};
};

// Collects the moves of the one call that a thread makes while the capture is its current one. A call adds
// its inputs in order, and then the moves of each.
class Capture {
 public:
  // The capture of this thread; null if it prepares nothing.
  [[gnu::visibility("default")]] static Capture* current();

  // Makes this the current capture, or the one before the current again.
  void begin();
  void end();

  // The call that is captured. Throws c10::ValueError if there was one before.
  void set_call(Collective collective, uint64_t number, const Group& group);

  // Forgets everything: the call starts anew.
  void clear();

  // Forgets the moves and their tensors, but not the call.
  void clear_moves();

  // Returns the input's index.
  size_t add_input(const KeptInput& input);

  void next_round();  // unless the current one has no moves with others

  // A move that reads what an input has as `read` is taken for the first move of that input. If several
  // inputs have the same tensor, the moves come in the order of the inputs.
  void add_alone(const Route& route, const at::Tensor& x, const at::Tensor& out);
  void add_together(const RouteCall& call);

  // For an input that needs no move: the result is a copy.
  void add_copy(size_t input, const at::Tensor& out) { copies_.push_back({.input = input, .out = out}); }

  // Adds what this rank has to receive for a route that leads straight to its goal.
  void add_least(const Route& direct, int64_t element_bytes);

  const std::optional<Group>& group() const { return group_; }
  Collective collective() const { return collective_; }
  uint64_t number() const { return number_; }
  int64_t least_bytes() const { return least_bytes_; }
  std::vector<KeptInput>& inputs() { return inputs_; }
  const std::vector<KeptInput>& inputs() const { return inputs_; }
  std::vector<KeptRound>& rounds() { return rounds_; }
  const std::vector<KeptRound>& rounds() const { return rounds_; }
  const std::vector<KeptCopy>& copies() const { return copies_; }

 private:
  KeptRound& round();
  std::optional<size_t> claim_input(const at::Tensor& x);

  Capture* before_ = nullptr;
  std::optional<Group> group_;
  Collective collective_ = Collective::redistribute;
  uint64_t number_ = 0;
  int64_t least_bytes_ = 0;
  std::deque<KeptRoute> routes_;  // the moves point into it
  std::vector<KeptInput> inputs_;
  std::set<std::pair<const c10::TensorImpl*, size_t>> unclaimed_;  // what inputs read, with their indices
  std::vector<KeptRound> rounds_;
  std::vector<KeptCopy> copies_;
};

}  // namespace shardway
