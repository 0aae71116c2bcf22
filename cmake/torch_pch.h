// What the files that include torch have in common.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
