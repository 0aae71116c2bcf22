// The rows of a mesh along one dim, each of which has a collective of its own, as ranks of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/call/header.h"
#include "shardway/group.h"
#include "shardway/layout.h"

namespace shardway {

using Row = std::vector<int64_t>;  // group ranks, in the mesh's order

struct Rows {
  std::vector<Row> all = {};
  std::optional<size_t> own = std::nullopt;  // which of them has this rank; none outside the mesh

  const Row& mine() const { return all[*own]; }
};

// Throws std::invalid_argument where the group does not cover the mesh or the mesh has no such dim.
Rows rows_along(const Mesh& mesh, int64_t mesh_dim, const Group& group);

// The place of a rank in its row.
int64_t place_in(const Row& row, int64_t rank);

// A rank of the mesh has a tensor, the others have none.
void check_tensor_of(const Rows& rows, const at::Tensor& tensor, const char* name);

// The ranks of each row bring the same; all ranks know what all bring, and throw the same c10::ValueError.
void compare_along(const Rows& rows, const Agreement& agreement, wire::Point point);

// What all ranks of the group must say alike; see Call.
std::string words_of(const Mesh& mesh, int64_t mesh_dim);

// Whether a call can go on without its caller: work on a device does by itself, on the caller's stream.
bool can_be_posted(const at::Tensor& tensor, const Group& group);

}  // namespace shardway
