// A route run on tensors, with its gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "ops/call/header.h"
#include "shardway/collectives.h"
#include "transport/common/transport.h"

namespace shardway {

// Who drives a call on: whoever waits for it, or a thread where the transport needs one.
enum class Progress : uint8_t { by_caller, by_itself };

// A call, or the gradient of one.
enum class Pass : uint8_t { forward, backward };

struct Launch {
  at::Tensor x = {};
  Collective collective = Collective::all_gather_v;
  uint64_t number = 0;  // of the call, for its gradient to name; see Forward
  Pass pass = Pass::forward;
  Route forward = {};
  Route backward = {};  // what the gradient travels by; read only when differentiable
  bool differentiable = false;
  std::optional<at::Tensor> out = std::nullopt;  // the caller's
  at::Tensor fresh = {};                         // made before the route was run
  KnownInputs known = {};
  Progress progress = Progress::by_caller;
  Sizes sizes = {};             // every rank's part of the result, for the caller
  int64_t whole_elements = -1;  // of what the ranks have together, where all of them know it
};

// What the gradient of a route's result travels by.
Route gradient_route(const Route& forward, Grad grad);

// What a route lands in. Elements on which nothing lands are zero.
at::Tensor fresh_output(const Route& route, const at::Tensor& like);

// Starts the route: collective. The result is a fresh tensor, or `out`; elements on which nothing lands
// are zero in a fresh one. When differentiable the result has a gradient on every rank, also where this
// rank's x needs none, since backward is a collective that every rank must run.
Async<at::Tensor> launch(Launch launch, const Group& group);

// The same for a list, in one exchange. All are of one collective and number.
Async<std::vector<at::Tensor>> launch_all(std::vector<Launch> launches, const Group& group);

// Agrees with the other ranks and runs the route that `decide` makes of that, in one meeting, of a transport
// that moves in it: collective.
Async<at::Tensor> launch_in_meeting(const Call& call, const std::function<Launch(Agreement)>& decide,
                                    const Group& group);

}  // namespace shardway
