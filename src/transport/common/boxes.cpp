#include "transport/common/boxes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

namespace shardway {

at::Tensor view_of(const at::Tensor& t, const Box& box) {
  if (at::IntArrayRef(box.extent) == t.sizes()) return t;
  int64_t offset = t.storage_offset();
  for (size_t d = 0; d < box.offset.size(); ++d) offset += box.offset[d] * t.stride(static_cast<int64_t>(d));
  return t.as_strided(box.extent, t.strides(), offset);
}

at::Tensor bytes_of(const at::Tensor& t) {
  return at::from_blob(
      t.data_ptr(), {static_cast<int64_t>(t.nbytes())}, [t](void*) {}, t.options().dtype(at::kByte),
      t.device());
}

}  // namespace shardway
