#include <ATen/core/Tensor.h>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"
#include "ops/call/header.h"
#include "ops/mesh/place.h"
#include "shardway/redistribute.h"

namespace shardway {
namespace {

std::string text_of(const Mesh& mesh, const std::vector<Placement>& placements) {
  std::string text = to_string(mesh) + ":";
  for (const Placement& placement : placements) text += " " + to_string(placement);
  return text;
}

std::vector<Placement> replicas(const Mesh& mesh) {
  return std::vector<Placement>(mesh.shape().size(), replicate());
}

// Makes shard dims that count from the end count from the front.
std::vector<Placement> from_the_front(std::vector<Placement> placements, int64_t ndim) {
  for (Placement& placement : placements) {
    if (placement.is_shard() && placement.dim < 0) placement.dim += ndim;
  }
  return placements;
}

// What every rank knows about the source's tensor once the source has told them.
struct ToldLayout {
  at::Tensor tensor;  // undefined on the other ranks
  Layout layout;
};

ToldLayout hear_from(int64_t src, const at::Tensor& tensor, const std::string& target, const Group& group) {
  const GroupRanks ranks(group.global_ranks());
  const auto source = ranks.rank_of(src);
  const bool is_source = source == group.rank();
  Call call{.collective = Collective::distribute};
  call.problem = problem_in([&] {
    if (!source) throw BadArgument(c10::str("src=", src, " is not in the group"));
    if (!is_source) return;
    check_movable(tensor, group, "tensor");
    dtype_of(tensor.scalar_type());
    call.x = tensor;
  });
  std::string words = c10::str("src: ", src, "\ntarget: ", target);
  call.hash = hash_of(words);
  call.words = [&] { return words; };
  if (!group.distributed()) {
    if (!call.problem.empty()) raise("distribute", call.problem, src);
    return {tensor, Layout(tensor.sizes().vec(), dtype_of(tensor.scalar_type()), Mesh({1}, {src}, {}),
                           {replicate()})};
  }
  const Agreement agreement = agree(call, group);
  return {call.x, Layout(agreement.shape_on(*source), dtype_of(agreement.dtype_on(*source)),
                         Mesh({1}, {src}, {}), {replicate()})};
}

}  // namespace

MeshTensor distribute(const at::Tensor& tensor, const Mesh& mesh, const std::vector<Placement>& placements,
                      const DistributeOptions& options) {
  const Group& group = options.group;
  group.check_meant("distribute");
  if (options.src) {
    const ToldLayout told = hear_from(*options.src, tensor, text_of(mesh, placements), group);
    return redistribute(MeshTensor(told.tensor, told.layout, group),
                        from_the_front(placements, told.layout.ndim()), {.mesh = mesh});
  }
  const int64_t number = group.global_ranks()[static_cast<size_t>(group.rank())];
  std::optional<Layout> whole;
  const std::string problem = problem_in([&] {
    check_dense(tensor, "tensor");
    whole.emplace(tensor.sizes().vec(), dtype_of(tensor.scalar_type()), mesh, replicas(mesh));
  });
  // The others slice what they have. They compare only where that costs next to nothing or is asked for.
  if (!problem.empty()) fail_together(Collective::redistribute, problem, group, /*sizes_known=*/true, tensor);
  const bool is_inside = mesh.position_of(number).has_value();
  return redistribute(MeshTensor(is_inside ? tensor : at::Tensor(), *whole, group),
                      from_the_front(placements, whole->ndim()));
}

}  // namespace shardway
