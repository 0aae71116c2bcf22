#include "ops/call/dtypes.h"

#include "ops/call/arguments.h"

namespace shardway {
namespace {

struct Pair {
  DType ours;
  at::ScalarType torchs;
};

constexpr Pair kPairs[] = {
    {DType::boolean, at::kBool},
    {DType::u8, at::kByte},
    {DType::u16, at::kUInt16},
    {DType::u32, at::kUInt32},
    {DType::u64, at::kUInt64},
    {DType::i8, at::kChar},
    {DType::i16, at::kShort},
    {DType::i32, at::kInt},
    {DType::i64, at::kLong},
    {DType::f8_e4m3fn, at::kFloat8_e4m3fn},
    {DType::f8_e4m3fnuz, at::kFloat8_e4m3fnuz},
    {DType::f8_e5m2, at::kFloat8_e5m2},
    {DType::f8_e5m2fnuz, at::kFloat8_e5m2fnuz},
    {DType::f8_e8m0fnu, at::kFloat8_e8m0fnu},
    {DType::f16, at::kHalf},
    {DType::bf16, at::kBFloat16},
    {DType::f32, at::kFloat},
    {DType::f64, at::kDouble},
    {DType::c32, at::kComplexHalf},
    {DType::c64, at::kComplexFloat},
    {DType::c128, at::kComplexDouble},
};

}  // namespace

DType dtype_of(at::ScalarType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.torchs == dtype) return pair.ours;
  }
  throw BadArgument("a tensor of " + dtype_name(dtype) + " cannot be moved");
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const Pair& pair : kPairs) {
    if (pair.ours == dtype) return pair.torchs;
  }
  throw BadArgument(std::string(name_of(dtype)) + " is not a dtype of torch");
}

}  // namespace shardway
