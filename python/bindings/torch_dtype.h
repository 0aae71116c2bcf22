// Converts between DType and torch.dtype by name, so that no torch header is needed.
#pragma once

#include <pybind11/pybind11.h>

#include "shardway/layout.h"

namespace shardway::python {

DType read_dtype(const pybind11::handle& value);
pybind11::object torch_dtype(DType dtype);

}  // namespace shardway::python
