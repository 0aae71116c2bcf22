#include <ATen/core/Tensor.h>

#include "shardway/mesh_collectives.h"
#include "transport/memory/tensors.h"

namespace shardway::collective_utils {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const char* name, const Parts&... parts) {
  C10_THROW_ERROR(ValueError, c10::str(name, ": ", parts...));
}

int64_t from_the_front(const char* name, const char* argument, const at::Tensor& tensor, int64_t dim) {
  if (dim < -tensor.dim() || dim >= tensor.dim())
    refuse(name, argument, "=", dim, " is out of range for a ", tensor.dim(), "-d tensor");
  return dim < 0 ? dim + tensor.dim() : dim;
}

}  // namespace

at::Tensor pad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size) {
  const int64_t dim = from_the_front("pad_tensor", "pad_dim", tensor, pad_dim);
  if (pad_size < 0) refuse("pad_tensor", "pad_size=", pad_size, " is negative");
  if (pad_size == 0) return tensor;
  std::vector<int64_t> pad(static_cast<size_t>(2 * (tensor.dim() - dim)), 0);  // begins with the last dim
  pad.back() = pad_size;
  return padded(tensor, pad);
}

at::Tensor unpad_tensor(const at::Tensor& tensor, int64_t pad_dim, int64_t pad_size) {
  const int64_t dim = from_the_front("unpad_tensor", "pad_dim", tensor, pad_dim);
  if (pad_size < 0) refuse("unpad_tensor", "pad_size=", pad_size, " is negative");
  if (pad_size > tensor.size(dim))
    refuse("unpad_tensor", "pad_size=", pad_size, ", but the tensor has ", tensor.size(dim), " along dim ",
           dim);
  return pad_size == 0 ? tensor : tensor.narrow(dim, 0, tensor.size(dim) - pad_size);
}

std::vector<at::Tensor> fill_empty_tensor_to_shards(std::vector<at::Tensor> shards, int64_t shard_dim,
                                                    int64_t num_empty_tensors) {
  constexpr const char* kName = "fill_empty_tensor_to_shards";
  if (num_empty_tensors < 0) refuse(kName, "num_empty_tensors=", num_empty_tensors, " is negative");
  if (num_empty_tensors == 0) return shards;
  if (shards.empty()) refuse(kName, "shards is empty: there is none to be like");
  std::vector<int64_t> shape = shards.front().sizes().vec();
  shape[static_cast<size_t>(from_the_front(kName, "shard_dim", shards.front(), shard_dim))] = 0;
  shards.insert(shards.end(), static_cast<size_t>(num_empty_tensors), shards.front().new_zeros(shape));
  return shards;
}

}  // namespace shardway::collective_utils
