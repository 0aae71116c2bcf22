// Several routes as one exchange.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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
  // What lives longer pays for memory that peers read where it lies.
  enum class Life : uint8_t { one_call, many_calls };

  // Packs what goes out. The routes must outlive this object.
  ListCall(const std::vector<RouteCall>& calls, const Transport& transport, Life life = Life::one_call);
  ListCall(const ListCall&) = delete;
  ListCall& operator=(const ListCall&) = delete;

  const std::vector<RouteCall>& calls() const { return calls_; }

  // Unpacks what came.
  void land() const;

  // A box of a small route, and where it lies among the bytes that are sent or received. The place of a box
  // that this rank takes from itself is not used.
  struct PackedBox {
    const RouteCall* call = nullptr;
    const Move* move = nullptr;
    int64_t place = 0;
  };

  // For calls on the CPU that are repeated: the small routes, their boxes and the bytes.
  const std::vector<RouteCall>& packed() const { return packed_; }
  std::vector<PackedBox> packed_pushes() const;
  std::vector<PackedBox> packed_pulls() const;
  std::byte* sent() const { return static_cast<std::byte*>(sent_.mutable_data_ptr()); }
  const std::byte* received() const { return static_cast<const std::byte*>(received_.const_data_ptr()); }

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
