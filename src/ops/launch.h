// A route run on tensors, with its gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "shardway/collectives.h"
#include "transport/transport.h"

namespace shardway {

// Who drives a call on: whoever waits for it, or a thread where the transport needs one.
enum class Progress : uint8_t { by_caller, by_itself };

struct Launch {
  const char* name = "";  // of the op, for errors
  Route forward = {};
  Route backward = {};  // what the gradient travels by; read only when differentiable
  bool differentiable = false;
  std::optional<at::Tensor> out = std::nullopt;
  KnownInputs known = {};
  Progress progress = Progress::by_caller;
};

// What the gradient of a route's result travels by.
Route gradient_route(const Route& forward, Grad grad);

// Starts the route: collective. The result is a fresh tensor, or `out`; elements on which nothing lands
// are zero in a fresh one. When differentiable the result has a gradient on every rank, also where this
// rank's x needs none, since backward is a collective that every rank must run.
Async<at::Tensor> launch(const at::Tensor& x, Launch launch, const Group& group);

}  // namespace shardway
