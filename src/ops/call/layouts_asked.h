// How a redistribution is interrupted if a rank does not know how the tensors lie.
#pragma once

#include <c10/util/Exception.h>

namespace shardway {

// Thrown on every rank when the blocks of a redistribution have been heard and one of them asks. No byte has
// moved. The ranks tell one another their layouts (ops/mesh/told_layouts.h) and begin again.
class LayoutsAsked : public c10::ValueError {
  using c10::ValueError::ValueError;
};

}  // namespace shardway
