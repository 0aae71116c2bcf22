#include "link/model/layouts.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "shardway/route.h"

namespace shardway::link {
namespace {

struct NameInTorch {
  DType dtype;
  const char* name;
};

constexpr NameInTorch kTorchNames[] = {
    {DType::boolean, "bool"},
    {DType::u8, "uint8"},
    {DType::u16, "uint16"},
    {DType::u32, "uint32"},
    {DType::u64, "uint64"},
    {DType::i8, "int8"},
    {DType::i16, "int16"},
    {DType::i32, "int32"},
    {DType::i64, "int64"},
    {DType::f8_e4m3fn, "float8_e4m3fn"},
    {DType::f8_e4m3fnuz, "float8_e4m3fnuz"},
    {DType::f8_e5m2, "float8_e5m2"},
    {DType::f8_e5m2fnuz, "float8_e5m2fnuz"},
    {DType::f8_e8m0fnu, "float8_e8m0fnu"},
    {DType::f16, "float16"},
    {DType::bf16, "bfloat16"},
    {DType::f32, "float32"},
    {DType::f64, "float64"},
    {DType::c32, "complex32"},
    {DType::c64, "complex64"},
    {DType::c128, "complex128"},
};

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

std::string torch_name(DType dtype) {
  const auto* row = std::find_if(std::begin(kTorchNames), std::end(kTorchNames),
                                 [&](const NameInTorch& one) { return one.dtype == dtype; });
  return row == std::end(kTorchNames) ? "unknown" : row->name;
}

std::optional<DType> dtype_if_named(const std::string& name) {
  const auto* row = std::find_if(std::begin(kTorchNames), std::end(kTorchNames),
                                 [&](const NameInTorch& one) { return one.name == name; });
  return row == std::end(kTorchNames) ? std::nullopt : std::optional(row->dtype);
}

DType dtype_named(const std::string& name) {
  if (const auto dtype = dtype_if_named(name)) return *dtype;
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
