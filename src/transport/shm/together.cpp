#include "transport/shm/together.h"

#include <ATen/ATen.h>

#include <numeric>

#include "shm/calls/execution.h"
#include "shm/kernels/copy.h"
#include "transport/memory/warm_memory.h"
#include "transport/shm/shm_part.h"

namespace shardway {
namespace {

using BytesByRank = std::vector<int64_t>;  // by rank

// Of a box in a run, so that the elements of any dtype are where loops may read them.
constexpr int64_t kAlignment = 16;

int64_t bytes_of_move(const Move& move, const at::Tensor& t) {
  const int64_t bytes = move.mine.volume() * static_cast<int64_t>(t.itemsize());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void add_bytes(const Moves& moves, const RouteCall& call, BytesByRank& bytes) {
  for (const Move& move : moves) {
    if (move.peer != call.route->rank) bytes[static_cast<size_t>(move.peer)] += bytes_of_move(move, call.x);
  }
}

int64_t total(const BytesByRank& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

// Where each rank's run of bytes goes on, of runs that lie one behind the other.
BytesByRank beginnings(const BytesByRank& bytes) {
  BytesByRank begin(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), begin.begin(), int64_t{0});
  return begin;
}

// By call, then in the route's order: the receiver finds the boxes of a run in that order too.
void pack(std::span<const RouteCall> calls, const BytesByRank& sizes, std::byte* runs) {
  BytesByRank at = beginnings(sizes);
  for (const RouteCall& call : calls) {
    const shm::FixedDims strides = byte_strides(call.x);
    for (const Move& push : call.route->pushes) {
      if (push.peer == call.route->rank || push.mine.volume() == 0) continue;
      const auto* from = static_cast<const std::byte*>(call.x.const_data_ptr());
      for (size_t d = 0; d < strides.size(); ++d) from += push.mine.offset[d] * strides[d];
      int64_t& place = at[static_cast<size_t>(push.peer)];
      shm::pack_box(runs + place, from, strides, push.mine.extent, static_cast<int64_t>(call.x.itemsize()));
      place += bytes_of_move(push, call.x);
    }
  }
}

void land(std::span<const RouteCall> calls, const BytesByRank& sizes, const std::byte* runs) {
  BytesByRank at = beginnings(sizes);
  std::vector<const std::byte*> arrived;
  for (const RouteCall& call : calls) {
    arrived.assign(call.route->pulls.size(), nullptr);
    for (size_t i = 0; i < arrived.size(); ++i) {
      const Move& pull = call.route->pulls[i];
      if (pull.peer == call.route->rank) continue;
      int64_t& place = at[static_cast<size_t>(pull.peer)];
      arrived[i] = runs + place;
      place += bytes_of_move(pull, call.x);
    }
    shm::run_alone(ShmPart(*call.route, call.x, call.out, arrived).part());
  }
}

}  // namespace

void run_together(Transport& transport, std::span<const RouteCall> calls, const Subject& subject) {
  AllToAllSizes sizes{.send = BytesByRank(static_cast<size_t>(transport.size())),
                      .recv = BytesByRank(static_cast<size_t>(transport.size()))};
  for (const RouteCall& call : calls) {
    add_bytes(call.route->pushes, call, sizes.send);
    add_bytes(call.route->pulls, call, sizes.recv);
  }
  const at::Tensor sent = warm_empty({total(sizes.send)}, at::kByte);
  const at::Tensor received = warm_empty({total(sizes.recv)}, at::kByte);
  pack(calls, sizes.send, static_cast<std::byte*>(sent.mutable_data_ptr()));
  const Route exchange = all_to_all_route({sent.numel()}, 0, sizes, transport.rank());
  transport.start(exchange, sent, received, {}, subject)->finish();
  land(calls, sizes.recv, static_cast<const std::byte*>(received.const_data_ptr()));
}

}  // namespace shardway
