// What has arrived for a route, put where it lands.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "shardway/route.h"
#include "transport/common/transport.h"

namespace shardway {

class Arrivals {
 public:
  Arrivals(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known);

  const Route& route() const { return route_; }

  // The memory into which pull `i` of the route is to be received: its place in the output if it can land
  // there directly, else a buffer. Undefined if nothing has to be received.
  const at::Tensor& buffer(size_t i) const { return buffers_[i]; }

  // Gives the box of a pull that was received into other memory.
  void set_arrived(size_t i, at::Tensor box) {
    buffers_[i] = std::move(box);
    in_place_[i] = false;
  }

  // Copies into the output what is here before any message: this rank's own boxes and the known inputs. Does
  // nothing for a route that reduces.
  void land_known();

  // Unpacks or combines what was received. There is nothing to do for a route that copies contiguous boxes.
  void land_received();

 private:
  at::Tensor arrived(size_t pull) const;

  Route route_;
  at::Tensor out_;
  bool reduces_ = false;
  std::vector<Landing> landings_;
  std::vector<at::Tensor> here_;     // by pull: a view of a known input or of x; undefined if received
  std::vector<at::Tensor> buffers_;  // by pull
  std::vector<bool> in_place_;       // by pull: the buffer is the place in the output
};

}  // namespace shardway
