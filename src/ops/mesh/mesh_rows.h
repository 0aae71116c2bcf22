// The rows of a mesh along one dim, as ranks of a group. Each row runs a collective of its own.
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
  std::optional<size_t> own = std::nullopt;  // the row that contains this rank; none outside the mesh

  const Row& mine() const { return all[*own]; }
};

// Throws std::invalid_argument if the group does not cover the mesh or the mesh has no such dim.
Rows rows_along(const Mesh& mesh, int64_t mesh_dim, const Group& group);

// The place of a rank in its row.
int64_t place_in(const Row& row, int64_t rank);

// Throws BadArgument if a rank of the mesh has no tensor, or if another rank has one.
void check_tensor_of(const Rows& rows, const at::Tensor& tensor, const char* name);

// Throws c10::ValueError if two ranks of a row differ in the point. Every rank compares all rows, so the
// error is the same on all.
void compare_along(const Rows& rows, const Agreement& agreement, wire::Point point);

// What all ranks of the group must say alike, in words; see Call.
std::string words_of(const Mesh& mesh, int64_t mesh_dim);

// Whether a call is posted to run asynchronously. Work on a device is not: it runs asynchronously anyway, on
// the caller's stream.
bool can_be_posted(const at::Tensor& tensor, const Group& group);

}  // namespace shardway
