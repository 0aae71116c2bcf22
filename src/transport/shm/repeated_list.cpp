#include "transport/shm/repeated_list.h"

#include <ATen/core/Tensor.h>

#include "shm/calls/execution.h"
#include "transport/shm/small_runs.h"

namespace shardway {
namespace {

// The place of a box in a tensor.
const std::byte* place_of(const at::Tensor& t, const Box& box, const shm::FixedDims& strides) {
  return static_cast<const std::byte*>(t.const_data_ptr()) + shm::offset_bytes(box.offset, strides);
}

void add_copy(const at::Tensor& out, const Box& box, const std::byte* from,
              const shm::FixedDims& from_strides, BoxCopies& copies) {
  const shm::FixedDims strides = byte_strides(out);
  std::byte* to = static_cast<std::byte*>(out.mutable_data_ptr()) + shm::offset_bytes(box.offset, strides);
  copies.add(to, strides, from, from_strides, box.extent, static_cast<int64_t>(out.itemsize()));
}

bool combines(const Route& route) { return reduces(landings(route), route); }

}  // namespace

RepeatedList::RepeatedList(std::vector<RouteCall> calls, const Transport& transport,
                           std::shared_ptr<ShmEngine> engine)
    : calls_(std::move(calls)),
      list_(calls_, transport, ListCall::Life::many_calls),
      engine_(std::move(engine)) {
  for (const ListCall::PackedBox& box : list_.packed_pushes()) {
    const at::Tensor& x = box.call->x;
    const auto item = static_cast<int64_t>(x.itemsize());
    const shm::FixedDims strides = byte_strides(x);
    packing_.add(list_.sent() + box.place, shm::packed_strides(box.move->mine.extent, item),
                 place_of(x, box.move->mine, strides), strides, box.move->mine.extent, item);
  }
  const std::vector<ListCall::PackedBox> pulls = list_.packed_pulls();
  auto pull = pulls.begin();
  for (const RouteCall& call : list_.packed()) {
    const auto end = pull + static_cast<std::ptrdiff_t>(call.route->pulls.size());
    keep_landing(call, {pull, end});
    pull = end;
  }
  if (list_.calls().size() == 1) runs_ = small_runs_of(list_.calls()[0]);
  if (!runs_) routes_.emplace(list_.calls());
}

void RepeatedList::keep_landing(const RouteCall& call, std::span<const ListCall::PackedBox> pulls) {
  if (combines(*call.route)) {
    std::vector<const std::byte*> arrived;
    for (const ListCall::PackedBox& pull : pulls) arrived.push_back(list_.received() + pull.place);
    combined_.emplace_back(*call.route, call.x, call.out, arrived);
    return;
  }
  const auto item = static_cast<int64_t>(call.x.itemsize());
  for (const ListCall::PackedBox& pull : pulls) {
    const Move& move = *pull.move;
    const bool is_own = move.peer == call.route->rank;
    const shm::FixedDims strides =
        is_own ? byte_strides(call.x) : shm::packed_strides(move.mine.extent, item);
    const std::byte* from = is_own ? place_of(call.x, move.theirs, strides) : list_.received() + pull.place;
    add_copy(call.out, move.mine, from, strides, unpacking_);
  }
}

void RepeatedList::run(const Subject& subject) {
  packing_.run();
  engine_->in_turn([&](shm::SharedGroup& group) {
    if (runs_) return void(group.run(*runs_, subject));
    routes_->run(group, subject);
  });
  unpacking_.run();
  for (const ShmPart& part : combined_) shm::run_alone(part.part());
}

}  // namespace shardway
