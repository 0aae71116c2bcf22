#include "transport/ipc/taking.h"

#include <ATen/core/Tensor.h>

#include "cuda/ptx.h"
#include "transport/common/boxes.h"
#include "transport/common/reduce.h"
#include "transport/memory/tensors.h"
#include "transport/shm/shm_part.h"

namespace shardway {
namespace {

cuda::StridedBox moved_on(cuda::StridedBox box, const Dims& offset) {
  for (size_t d = 0; d < offset.size(); ++d)
    box.address += static_cast<cuda::DeviceAddress>(offset[d] * box.strides[d]);
  return box;
}

}  // namespace

cuda::StridedBox box_of(const at::Tensor& t, const Dims& offset) {
  cuda::StridedBox box{.address = reinterpret_cast<cuda::DeviceAddress>(t.const_data_ptr()),
                       .strides = t.strides().vec()};
  for (int64_t& stride : box.strides) stride *= t.element_size();
  return moved_on(std::move(box), offset);
}

Taking::Taking(const Route& route, const at::Tensor& out) : route_(route), out_(out) {
  out_.mutable_data_ptr();  // of a tensor that shares memory until it is written
  landings_ = landings(route);
  if (!reduces(landings_, route)) return;
  const shm::Combine how = combination(route, out.scalar_type());
  if (cuda::has_combine_text(how)) {
    how_ = how;
    return;
  }
  for (const Move& pull : route.pulls)
    buffers_.push_back(
        empty_tensor(at::IntArrayRef(pull.mine.extent.data(), pull.mine.extent.size()), out.options()));
}

std::vector<cuda::BoxMove> Taking::copies(const Sources& sources) const {
  std::vector<cuda::BoxMove> moves;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Move& pull = route_.pulls[i];
    moves.push_back({.extent = pull.mine.extent,
                     .element_bytes = out_.element_size(),
                     .to = buffers_.empty() ? box_of(out_, pull.mine.offset)
                                            : box_of(buffers_[i], Dims(pull.mine.extent.size())),
                     .from = {sources[i]}});
  }
  return moves;
}

std::vector<cuda::BoxMove> Taking::sums(const Sources& sources) const {
  std::vector<cuda::BoxMove> moves;
  for (const Landing& landing : landings_) {
    cuda::BoxMove& move = moves.emplace_back(cuda::BoxMove{.extent = landing.box.extent,
                                                           .element_bytes = out_.element_size(),
                                                           .to = box_of(out_, landing.box.offset)});
    for (const Addend& addend : landing.addends)
      move.from.push_back(moved_on(sources[static_cast<size_t>(addend.pull)], addend.from.offset));
  }
  return moves;
}

void Taking::land() const {
  if (buffers_.empty()) return;
  for (const Landing& landing : landings_) {
    std::vector<at::Tensor> addends;
    for (const Addend& addend : landing.addends)
      addends.push_back(view_of(buffers_[static_cast<size_t>(addend.pull)], addend.from));
    reduce_into(view_of(out_, landing.box), addends, route_.op, route_.divisor);
  }
}

}  // namespace shardway
