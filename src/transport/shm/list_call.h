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

// The routes of a list as they are moved. Large routes move as they are; what the small routes send to a rank
// becomes one run of bytes. Packing costs two copies, but saves a message or a record per route. The tensors
// of the small routes are on one device; each has its own dtype.
class ListCall {
 public:
  // Packs what goes out. The routes must outlive this object.
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
  std::optional<StartingStream> stream_;  // if the packed tensors are on a device
};

// Starts each route of the list on its own.
std::unique_ptr<Transfer> start_each(std::unique_ptr<const ListCall> list, Transport& transport,
                                     const Subject& subject);

}  // namespace shardway
