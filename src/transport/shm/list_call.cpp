#include "transport/shm/list_call.h"

#include <ATen/core/Tensor.h>

#include <numeric>

#include "shardway/memory.h"
#include "shm/calls/execution.h"
#include "shm/kernels/copy.h"
#include "transport/common/arrivals.h"
#include "transport/common/boxes.h"
#include "transport/memory/warm_memory.h"
#include "transport/shm/shm_part.h"

namespace shardway {
namespace {

using BytesByRank = std::vector<int64_t>;  // by rank

// Alignment of a box in a run, so that loops may read elements of any dtype there.
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

// Where each rank's run of bytes begins, if the runs lie one after another.
BytesByRank beginnings(const BytesByRank& bytes) {
  BytesByRank begin(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), begin.begin(), int64_t{0});
  return begin;
}

// The box at `place` in the runs, as a tensor.
at::Tensor box_in(const at::Tensor& runs, int64_t place, const Box& box, const at::Tensor& like) {
  const int64_t bytes = box.volume() * static_cast<int64_t>(like.itemsize());
  return runs.narrow(0, place, bytes).view(like.scalar_type()).view(box.extent);
}

// In memory that the peers can read, if some is left.
at::Tensor readable_bytes(int64_t count) {
  try {
    return empty({count}, at::kByte);
  } catch (const c10::OutOfMemoryError&) {
    return warm_empty({count}, at::kByte);
  }
}

void pack_push(const RouteCall& call, const Move& push, const at::Tensor& runs, int64_t place) {
  if (push.mine.volume() == 0) return;
  if (!call.x.is_cpu()) {
    box_in(runs, place, push.mine, call.x).copy_(view_of(call.x, push.mine));
    return;
  }
  const shm::FixedDims strides = byte_strides(call.x);
  const auto* from =
      static_cast<const std::byte*>(call.x.const_data_ptr()) + shm::offset_bytes(push.mine.offset, strides);
  auto* to = static_cast<std::byte*>(runs.mutable_data_ptr()) + place;
  shm::pack_box(to, from, strides, push.mine.extent, static_cast<int64_t>(call.x.itemsize()));
}

using Places = std::vector<int64_t>;  // by pull: the offset in the runs; not read for this rank's own pulls

void land_on_device(const RouteCall& call, const at::Tensor& runs, const Places& places) {
  Arrivals arrivals(*call.route, call.x, call.out, {});
  for (size_t i = 0; i < places.size(); ++i) {
    const Move& pull = call.route->pulls[i];
    if (pull.peer != call.route->rank && pull.mine.volume() > 0)
      arrivals.set_arrived(i, box_in(runs, places[i], pull.mine, call.x));
  }
  arrivals.land_known();
  arrivals.land_received();
}

void land_on_cpu(const RouteCall& call, const at::Tensor& runs, const Places& places) {
  std::vector<const std::byte*> arrived;
  for (const int64_t place : places)
    arrived.push_back(static_cast<const std::byte*>(runs.const_data_ptr()) + place);
  shm::run_alone(ShmPart(*call.route, call.x, call.out, arrived).part());
}

// A list whose routes are under way.
class ListTransfer : public Transfer {
 public:
  ListTransfer(std::unique_ptr<const ListCall> list, std::unique_ptr<Transfer> routes)
      : list_(std::move(list)), routes_(std::move(routes)) {}

  void finish() override {
    routes_->finish();
    list_->land();
  }
  bool is_over() override { return routes_->is_over(); }

 private:
  std::unique_ptr<const ListCall> list_;
  std::unique_ptr<Transfer> routes_;
};

}  // namespace

ListCall::ListCall(const std::vector<RouteCall>& calls, const Transport& transport, Life life)
    : bytes_{.send = BytesByRank(static_cast<size_t>(transport.size())),
             .recv = BytesByRank(static_cast<size_t>(transport.size()))} {
  for (const RouteCall& call : calls) (call.is_small ? packed_ : calls_).push_back(call);
  if (packed_.empty()) return;
  for (const RouteCall& call : packed_) {
    add_bytes(call.route->pushes, call, bytes_.send);
    add_bytes(call.route->pulls, call, bytes_.recv);
  }
  if (!packed_[0].x.is_cpu()) stream_.emplace(packed_[0].x);
  const auto options = packed_[0].x.options().dtype(at::kByte);
  const bool is_read_in_place = life == Life::many_calls && packed_[0].x.is_cpu();
  sent_ = is_read_in_place ? readable_bytes(total(bytes_.send)) : warm_empty({total(bytes_.send)}, options);
  received_ = warm_empty({total(bytes_.recv)}, options);
  for (const PackedBox& box : packed_pushes()) pack_push(*box.call, *box.move, sent_, box.place);
  exchange_ = all_to_all_route({sent_.numel()}, 0, bytes_, transport.rank());
  calls_.push_back({.route = &exchange_, .x = sent_, .out = received_, .offsets_unknown = true});
}

std::vector<ListCall::PackedBox> ListCall::packed_pushes() const {
  BytesByRank at = beginnings(bytes_.send);
  std::vector<PackedBox> boxes;  // by call, then in the route's order, in which the receiver finds them
  for (const RouteCall& call : packed_) {
    for (const Move& push : call.route->pushes) {
      if (push.peer == call.route->rank) continue;
      int64_t& place = at[static_cast<size_t>(push.peer)];
      boxes.push_back({.call = &call, .move = &push, .place = place});
      place += bytes_of_move(push, call.x);
    }
  }
  return boxes;
}

std::vector<ListCall::PackedBox> ListCall::packed_pulls() const {
  BytesByRank at = beginnings(bytes_.recv);
  std::vector<PackedBox> boxes;
  for (const RouteCall& call : packed_) {
    for (const Move& pull : call.route->pulls) {
      int64_t& place = at[static_cast<size_t>(pull.peer)];
      boxes.push_back({.call = &call, .move = &pull, .place = place});
      if (pull.peer != call.route->rank) place += bytes_of_move(pull, call.x);
    }
  }
  return boxes;
}

void ListCall::land() const {
  const std::vector<PackedBox> boxes = packed_pulls();
  auto box = boxes.begin();
  Places places;
  for (const RouteCall& call : packed_) {
    places.clear();
    for (size_t i = 0; i < call.route->pulls.size(); ++i) places.push_back((box++)->place);
    if (stream_) stream_->lend({call.x, call.out});
    (call.x.is_cpu() ? land_on_cpu : land_on_device)(call, received_, places);
  }
}

std::unique_ptr<Transfer> start_each(std::unique_ptr<const ListCall> list, Transport& transport,
                                     const Subject& subject) {
  auto routes = transport.Transport::start_all(list->calls(), subject);
  return std::make_unique<ListTransfer>(std::move(list), std::move(routes));
}

}  // namespace shardway
