// What files that bind tensors to Python have in common.
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
