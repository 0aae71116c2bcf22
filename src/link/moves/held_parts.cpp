#include "link/moves/held_parts.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <numeric>

#include "shm/kernels/copy.h"
#include "transport/shm/shm_part.h"

namespace shardway::link {
namespace {

bool is_plain(const at::Tensor& t) {
  return t.is_cpu() && t.layout() == at::kStrided && !t.is_conj() && !t.is_neg();
}

void copy_part(const at::Tensor& to, const at::Tensor& part, int64_t all_bytes) {
  TORCH_CHECK_VALUE(to.sizes() == part.sizes() && to.scalar_type() == part.scalar_type(),
                    "send: a part of shape ", part.sizes(), " is held in one of shape ", to.sizes());
  if (!is_plain(to) || !is_plain(part)) {
    to.copy_(part);
    return;
  }
  const auto item = static_cast<int64_t>(part.itemsize());
  const shm::FixedDims extent(std::span<const int64_t>(part.sizes().data(), part.sizes().size()));
  shm::copy_box(static_cast<std::byte*>(to.mutable_data_ptr()), byte_strides(to),
                static_cast<const std::byte*>(part.const_data_ptr()), byte_strides(part), extent, item,
                all_bytes);
}

}  // namespace

void copy_parts(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& parts) {
  TORCH_CHECK_VALUE(to.size() == parts.size(), "send: ", parts.size(), " parts for ", to.size(), " places");
  const at::NoGradGuard no_grad;
  const int64_t bytes = std::accumulate(
      parts.begin(), parts.end(), int64_t{0},
      [](int64_t sum, const at::Tensor& part) { return sum + static_cast<int64_t>(part.nbytes()); });
  for (size_t i = 0; i < parts.size(); ++i) copy_part(to[i], parts[i], bytes);
}

}  // namespace shardway::link
