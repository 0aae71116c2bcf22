// A route run on tensors, with its gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ops/call/header.h"
#include "shardway/collectives.h"
#include "transport/common/transport.h"

namespace shardway {

// Who drives a call: whoever waits for it, or a thread if the transport needs one.
enum class Progress : uint8_t { by_caller, by_itself };

// A call, or the gradient of one.
enum class Pass : uint8_t { forward, backward };

struct Launch {
  at::Tensor x = {};
  Collective collective = Collective::all_gather_v;
  uint64_t number = 0;  // of the call; its gradient names it; see Forward
  Pass pass = Pass::forward;
  Route forward = {};
  Route backward = {};  // the gradient's route; read only if differentiable
  bool differentiable = false;
  std::optional<at::Tensor> out = std::nullopt;  // the caller's
  at::Tensor fresh = {};                         // an output that was made before the route was run
  KnownInputs known = {};
  Progress progress = Progress::by_caller;
  Sizes sizes = {};             // every rank's part of the result, for the caller
  int64_t whole_elements = -1;  // of all ranks' tensors together; -1 if not all ranks know it
};

// The route by which the gradient of a route's result travels.
Route gradient_route(const Route& forward, Grad grad);

// A new tensor for the route's output. Elements on which nothing lands are zero.
at::Tensor fresh_output(const Route& route, const at::Tensor& like);

// Starts the route. Collective. The result is a fresh tensor, or `out`; elements on which nothing lands
// are zero in a fresh one. If differentiable, the result has a gradient on every rank, even if this
// rank's x needs none, since backward is a collective that every rank must run.
Async<at::Tensor> launch(Launch launch, const Group& group);

// The same for a list, in one exchange. All launches have one collective and one number.
Async<std::vector<at::Tensor>> launch_all(std::vector<Launch> launches, const Group& group);

// Agrees with the other ranks and runs the route that `decide` makes from the agreement, in one meeting.
// Collective; only for a transport that moves in meetings.
Async<at::Tensor> launch_in_meeting(const Call& call, const std::function<Launch(Agreement)>& decide,
                                    const Group& group);

// How a call is made if it was not kept, or if a rank says something else than when it was kept.
struct Anew {
  std::function<Call()> read;
  std::function<Launch(const Call&, Agreement)> decide;
};

// The same for a plain call of this key, which `calls` keeps for the next one.
Ragged launch_and_keep(const KeptCallKey& key, KeptCalls& calls, const Anew& anew, const Group& group);

// The same for a call that `calls` has kept.
Ragged launch_again(std::unique_ptr<KeptCall> kept, const KeptCallKey& key, KeptCalls& calls,
                    const Anew& anew, const Group& group);

}  // namespace shardway
