// The copy of a version that is sent later, while its caller goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace shardway::link {

// Copies each of `parts` to the one of `to` with the same number, shape and dtype. If all together are larger
// than a cache, they go past it: nobody reads them soon, and the memory that they overwrite is not read
// first. Throws c10::ValueError if a pair does not match.
[[gnu::visibility("default")]] void copy_parts(const std::vector<at::Tensor>& to,
                                               const std::vector<at::Tensor>& parts);

}  // namespace shardway::link
