#include <stdexcept>

#include "shardway/layout.h"

namespace shardway {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  int64_t bytes;
  bool is_integral;
};

constexpr DTypeRow kDTypes[] = {
    {DType::boolean, "boolean", 1, true},
    {DType::u8, "u8", 1, true},
    {DType::u16, "u16", 2, true},
    {DType::u32, "u32", 4, true},
    {DType::u64, "u64", 8, true},
    {DType::i8, "i8", 1, true},
    {DType::i16, "i16", 2, true},
    {DType::i32, "i32", 4, true},
    {DType::i64, "i64", 8, true},
    {DType::f8_e4m3fn, "f8_e4m3fn", 1, false},
    {DType::f8_e4m3fnuz, "f8_e4m3fnuz", 1, false},
    {DType::f8_e5m2, "f8_e5m2", 1, false},
    {DType::f8_e5m2fnuz, "f8_e5m2fnuz", 1, false},
    {DType::f8_e8m0fnu, "f8_e8m0fnu", 1, false},
    {DType::f16, "f16", 2, false},
    {DType::bf16, "bf16", 2, false},
    {DType::f32, "f32", 4, false},
    {DType::f64, "f64", 8, false},
    {DType::c32, "c32", 4, false},
    {DType::c64, "c64", 8, false},
    {DType::c128, "c128", 16, false},
};

const DTypeRow& row_of(DType dtype) { return kDTypes[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t item_bytes(DType dtype) { return row_of(dtype).bytes; }
bool is_integral(DType dtype) { return row_of(dtype).is_integral; }
const char* name_of(DType dtype) { return row_of(dtype).name; }

DType dtype_from_name(const std::string& name) {
  std::string known;
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return row.dtype;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw std::invalid_argument("dtype '" + name + "' is not one of " + known);
}

}  // namespace shardway
