#include "ops/mesh/mesh_rows.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "ops/call/arguments.h"
#include "plan/geometry/group_ranks.h"
#include "transport/common/transport.h"

namespace shardway {

Rows rows_along(const Mesh& mesh, int64_t mesh_dim, const Group& group) {
  const GroupRanks ranks(group.global_ranks());
  ranks.check_cover(mesh);
  if (mesh_dim < -mesh.ndim() || mesh_dim >= mesh.ndim())
    throw BadArgument(c10::str("mesh_dim=", mesh_dim, " is out of range for a ", mesh.ndim(), "-d mesh"));
  const int64_t dim = mesh_dim < 0 ? mesh_dim + mesh.ndim() : mesh_dim;
  Rows rows;
  for (int64_t first = 0; first < mesh.size(); ++first) {
    if (first / mesh.stride(dim) % mesh.size(dim) != 0) continue;
    Row row;
    for (int64_t i = 0; i < mesh.size(dim); ++i)
      row.push_back(*ranks.rank_of(mesh.ranks()[static_cast<size_t>(first + i * mesh.stride(dim))]));
    if (std::find(row.begin(), row.end(), group.rank()) != row.end()) rows.own = rows.all.size();
    rows.all.push_back(std::move(row));
  }
  return rows;
}

int64_t place_in(const Row& row, int64_t rank) {
  return std::find(row.begin(), row.end(), rank) - row.begin();
}

void check_tensor_of(const Rows& rows, const at::Tensor& tensor, const char* name) {
  if (rows.own && !tensor.defined()) throw BadArgument(c10::str(name, " is not a tensor"));
  if (!rows.own && tensor.defined())
    throw BadArgument(c10::str("this rank is outside the mesh, but has a tensor as ", name));
}

void compare_along(const Rows& rows, const Agreement& agreement, wire::Point point) {
  for (const Row& row : rows.all) {
    for (size_t i = 1; i < row.size(); ++i) agreement.compare(point, row.front(), row[i]);
  }
}

std::string words_of(const Mesh& mesh, int64_t mesh_dim) {
  return c10::str("mesh: ", to_string(mesh), " of ranks ", at::IntArrayRef(mesh.ranks()),
                  "\nmesh_dim: ", mesh_dim);
}

bool can_be_posted(const at::Tensor& tensor, const Group& group) {
  if (!group.distributed()) return false;
  if (tensor.defined()) return tensor.is_cpu();
  return group.transport().refuses(c10::Device(c10::kCUDA, 0)).has_value();
}

}  // namespace shardway
