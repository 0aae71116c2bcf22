#include "torch_dtype.h"

#include <stdexcept>
#include <string>

#include "values.h"

namespace shardway::python {
namespace {

struct TorchName {
  DType dtype;
  const char* name;
};

constexpr TorchName kTorchNames[] = {
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

}  // namespace

DType read_dtype(const py::handle& value) {
  const std::string text = py::str(value).cast<std::string>();
  for (const TorchName& known : kTorchNames) {
    if (text == std::string("torch.") + known.name) return known.dtype;
  }
  throw std::invalid_argument("layout: dtype=" + text_of(value) +
                              " is not a torch.dtype that shardway moves");
}

py::object torch_dtype(DType dtype) {
  for (const TorchName& known : kTorchNames) {
    if (known.dtype == dtype) return py::module_::import("torch").attr(known.name);
  }
  return py::none();
}

}  // namespace shardway::python
