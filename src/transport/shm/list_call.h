// Several routes as one exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "shardway/route.h"
#include "transport/common/starting_stream.h"
#include "transport/common/transport.h"

namespace shardway {

// The routes of a list as they are moved: large ones as they are, and what the small ones send to a rank as
// one run of bytes. Packing costs two copies, against a message or a record each. The small ones lie on one
// device; each tensor has its own dtype.
class ListCall {
 public:
  // Packs what goes out. The calls live as long as this.
  ListCall(const std::vector<RouteCall>& calls, const Transport& transport);
  ListCall(const ListCall&) = delete;
  ListCall& operator=(const ListCall&) = delete;

  const std::vector<RouteCall>& calls() const { return calls_; }

  // Unpacks what came.
  void land() const;

 private:
  std::vector<RouteCall> calls_;
  std::vector<RouteCall> packed_;
  AllToAllSizes bytes_;  // of the runs
  at::Tensor sent_;
  at::Tensor received_;
  Route exchange_;
  std::optional<StartingStream> stream_;  // of packed tensors on a device
};

// Starts each of its routes by itself.
std::unique_ptr<Transfer> start_each(std::unique_ptr<const ListCall> list, Transport& transport,
                                     const Subject& subject);

}  // namespace shardway
