// What files that call c10d, the dispatcher or most of ATen have in common.
#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
