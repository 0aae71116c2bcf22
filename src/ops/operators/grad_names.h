// Grad by its names in Python.
#pragma once

#include <string>
#include <string_view>

#include "ops/call/arguments.h"
#include "shardway/collectives.h"

namespace shardway {

inline Grad grad_from_name(std::string_view name) {
  if (name == "sum") return Grad::sum;
  if (name == "mean") return Grad::mean;
  if (name == "local") return Grad::local;
  throw BadArgument("grad='" + std::string(name) + "' is not one of sum, mean, local");
}

}  // namespace shardway
