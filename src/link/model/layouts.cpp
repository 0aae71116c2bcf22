#include "link/model/layouts.h"

#include <stdexcept>
#include <vector>

#include "ops/call/arguments.h"
#include "ops/call/dtypes.h"

namespace shardway::link {
namespace {

constexpr auto kLastDType = static_cast<uint8_t>(DType::c128);

Json said_of(const Placement& placement) {
  if (placement.is_shard()) {
    const Json sizes = placement.is_ragged() ? Json(placement.sizes) : Json(nullptr);
    return Json::array({"S", placement.dim, sizes});
  }
  if (placement.is_partial()) return Json::array({"P", name_of(placement.op)});
  return Json::array({"R"});
}

Placement placement_in(const Json& said) {
  const auto kind = said.at(0).get<std::string>();
  if (kind == "R") return replicate();
  if (kind == "P") return partial(op_from_name(said.at(1).get<std::string>()));
  if (kind != "S") throw std::invalid_argument("a placement of kind " + kind);
  const Json& sizes = said.at(2);
  return shard(said.at(1).get<int64_t>(),
               sizes.is_null() ? std::vector<int64_t>() : sizes.get<std::vector<int64_t>>());
}

Mesh mesh_in(const Json& entry, int64_t first_rank) {
  auto ranks = entry.at("mesh").get<std::vector<int64_t>>();
  for (int64_t& rank : ranks) rank += first_rank;
  return {entry.at("mesh_shape").get<std::vector<int64_t>>(), std::move(ranks), {}};
}

}  // namespace

std::string torch_name(DType dtype) { return dtype_name(scalar_type_of(dtype)); }

DType dtype_named(const std::string& name) {
  for (uint8_t number = 0; number <= kLastDType; ++number) {
    const auto dtype = static_cast<DType>(number);
    if (torch_name(dtype) == name) return dtype;
  }
  throw std::invalid_argument("a tensor of " + name + " cannot be moved");
}

Json entry_of(const Layout& layout) {
  Json placements = Json::array();
  for (const Placement& placement : layout.placements()) placements.push_back(said_of(placement));
  Json order = Json::array();
  for (const auto& dims : layout.order()) order.push_back(Json(dims));
  return {{"shape", layout.shape()},
          {"dtype", torch_name(layout.dtype())},
          {"mesh_shape", layout.mesh().shape()},
          {"mesh", layout.mesh().ranks()},
          {"placements", placements},
          {"order", order}};
}

Layout layout_of(const Json& entry, int64_t first_rank, DType dtype) {
  try {
    std::vector<Placement> placements;
    for (const Json& said : entry.at("placements")) placements.push_back(placement_in(said));
    return {entry.at("shape").get<std::vector<int64_t>>(), dtype, mesh_in(entry, first_rank),
            std::move(placements), entry.at("order").get<ShardOrder>()};
  } catch (const Json::exception& error) {
    throw std::invalid_argument(std::string("a layout cannot be read: ") + error.what());
  }
}

}  // namespace shardway::link
