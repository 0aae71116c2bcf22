#include "transport/shm/small_runs.h"

#include <ATen/core/Tensor.h>

#include "transport/shm/shm_part.h"

namespace shardway {
namespace {

constexpr size_t kMostBytes = 16 << 10;

bool is_run(const at::Tensor& t) { return t.dim() == 1 && t.is_contiguous(); }

bool is_of_collective(const Route& route) {
  const bool copies =
      route.divisor == 1 && (route.pattern == Pattern::all_gather || route.pattern == Pattern::all_to_all);
  return copies || route.pattern == Pattern::reduce_scatter;
}

}  // namespace

std::optional<shm::ContiguousCall> small_runs_of(const RouteCall& call) {
  const Route& route = *call.route;
  const bool is_small = call.x.nbytes() <= kMostBytes;
  if (!is_small || call.offsets_unknown || !is_run(call.x) || !is_run(call.out) || !is_of_collective(route))
    return std::nullopt;
  const auto element = static_cast<int64_t>(call.x.itemsize());
  shm::ContiguousCall runs{.element_bytes = element,
                           .input = static_cast<const std::byte*>(call.x.const_data_ptr()),
                           .input_bytes = static_cast<int64_t>(call.x.nbytes()),
                           .output = static_cast<std::byte*>(call.out.mutable_data_ptr())};
  for (int64_t rank = 0; rank < route.size; ++rank) {
    runs.sends.push_back({});
    runs.takes.push_back({});
  }
  for (const Move& push : route.pushes)
    runs.sends[static_cast<size_t>(push.peer)] = {.begin = push.mine.offset[0] * element,
                                                  .bytes = push.mine.extent[0] * element};
  for (const Move& pull : route.pulls) {
    const int64_t from = pull.theirs.offset[0];
    runs.takes[static_cast<size_t>(pull.peer)] = {.from = from == kUnknownOffset ? from : from * element,
                                                  .to = pull.mine.offset[0] * element,
                                                  .bytes = pull.mine.extent[0] * element};
  }
  if (route.pattern == Pattern::reduce_scatter) runs.combine = combination(route, call.x.scalar_type());
  return runs;
}

}  // namespace shardway
