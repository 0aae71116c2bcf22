#include "transport/shm/shm_part.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace shardway {

shm::Element element_of(at::ScalarType dtype) {
  using shm::Element;
  switch (dtype) {
    case at::kBool:
      return Element::boolean;
    case at::kByte:
      return Element::u8;
    case at::kUInt16:
      return Element::u16;
    case at::kUInt32:
      return Element::u32;
    case at::kUInt64:
      return Element::u64;
    case at::kChar:
      return Element::i8;
    case at::kShort:
      return Element::i16;
    case at::kInt:
      return Element::i32;
    case at::kLong:
      return Element::i64;
    case at::kHalf:
      return Element::f16;
    case at::kBFloat16:
      return Element::bf16;
    case at::kFloat:
      return Element::f32;
    case at::kDouble:
      return Element::f64;
    case at::kComplexFloat:
      return Element::complex64;
    case at::kComplexDouble:
      return Element::complex128;
    default:
      TORCH_CHECK_VALUE(false, dtype, " cannot be reduced");
  }
}

namespace {

shm::Reduction reduction_of(Op op) {
  switch (op) {
    case Op::min:
      return shm::Reduction::min;
    case Op::max:
      return shm::Reduction::max;
    case Op::product:
      return shm::Reduction::product;
    default:
      return shm::Reduction::sum;
  }
}

shm::Input input_of(const at::Tensor& t) {
  return {.data = static_cast<const std::byte*>(t.const_data_ptr()),
          .shape = std::span<const int64_t>(t.sizes().data(), t.sizes().size()),
          .strides = byte_strides(t)};
}

// The pattern of some collectives tells that they only copy; for other routes the landings decide.
bool only_copies(const Route& route) {
  return route.divisor == 1 && (route.pattern == Pattern::all_gather || route.pattern == Pattern::all_to_all);
}

// A box whose elements lie row by row.
shm::Input contiguous_box(const std::byte* data, const Dims& extent, int64_t element_bytes) {
  shm::Input box{.data = data, .shape = extent, .strides = extent};
  int64_t stride = element_bytes;
  for (size_t d = extent.size(); d-- > 0;) {
    box.strides[d] = stride;
    stride *= extent[d];
  }
  return box;
}

}  // namespace

shm::Combine combination(const Route& route, at::ScalarType dtype) {
  return {.element = element_of(dtype), .op = reduction_of(route.op), .divisor = route.divisor};
}

shm::FixedDims byte_strides(const at::Tensor& t) {
  shm::FixedDims strides(std::span<const int64_t>(t.strides().data(), t.strides().size()));
  for (size_t d = 0; d < strides.size(); ++d) strides[d] *= static_cast<int64_t>(t.itemsize());
  return strides;
}

void ShmPart::set_tensors(const at::Tensor& x, const at::Tensor& out) {
  part_.element_bytes = static_cast<int64_t>(x.itemsize());
  part_.input = input_of(x);
  part_.output = static_cast<std::byte*>(out.mutable_data_ptr());
  part_.output_strides = byte_strides(out);
}

ShmPart::ShmPart(const at::Tensor& x, const Moves& pushes) {
  if (!x.defined()) return;
  part_.element_bytes = static_cast<int64_t>(x.itemsize());
  part_.input = input_of(x);
  add_pushes(pushes);
}

ShmPart::ShmPart(const Route& route, const at::Tensor& x, const at::Tensor& out,
                 std::span<const std::byte* const> arrived) {
  set_tensors(x, out);
  here_.resize(route.pulls.size());
  for (size_t i = 0; i < route.pulls.size(); ++i) {
    const Move& pull = route.pulls[i];
    const bool is_own = pull.peer == route.rank;
    here_[i] = is_own ? part_.input : contiguous_box(arrived[i], pull.mine.extent, part_.element_bytes);
    part_.pulls.push_back({.peer = pull.peer,
                           .from = is_own ? pull.theirs.offset : Dims(pull.mine.extent.size()),
                           .to = pull.mine.offset,
                           .extent = pull.mine.extent,
                           .here = &here_[i]});
  }
  if (!only_copies(route)) add_landings(route, x.scalar_type());
}

ShmPart::ShmPart(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known) {
  complete(route, x, out, known);
}

void ShmPart::complete(const Route& route, const at::Tensor& x, const at::Tensor& out,
                       const KnownInputs& known) {
  set_tensors(x, out);
  part_.pushes.clear();
  here_.resize(static_cast<size_t>(route.size));
  for (int64_t rank = 0; rank < route.size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (is_known(known, rank)) here_[r] = input_of(known[r]);
    if (rank == route.rank) here_[r] = part_.input;
  }
  add_pulls(route);
  if (!is_known(known, route.rank)) add_pushes(route.pushes);  // else every rank has its input already
  if (only_copies(route)) return;
  add_landings(route, x.scalar_type());
  // A rank without rows has no landing, but takes its share of the work like the others.
  if (route.pattern != Pattern::reduce_scatter || route.size == 1) return;
  part_.is_reduce_scatter = true;
  part_.combine = combination(route, x.scalar_type());
}

void ShmPart::add_pushes(const Moves& pushes) {
  for (const Move& push : pushes)
    part_.pushes.push_back({.peer = push.peer, .from = push.mine.offset, .extent = push.mine.extent});
}

void ShmPart::add_pulls(const Route& route) {
  for (const Move& pull : route.pulls) {
    const shm::Input& here = here_[static_cast<size_t>(pull.peer)];
    const bool is_here = here.data != nullptr || pull.peer == route.rank;
    part_.pulls.push_back({.peer = pull.peer,
                           .from = pull.theirs.offset,
                           .to = pull.mine.offset,
                           .extent = pull.mine.extent,
                           .here = is_here ? &here : nullptr});
  }
}

void ShmPart::add_landings(const Route& route, at::ScalarType dtype) {
  const std::vector<Landing> all = landings(route);
  if (!reduces(all, route)) return;
  part_.combine = combination(route, dtype);
  for (const Landing& landing : all) {
    shm::PartLanding& added = part_.landings.emplace_back(
        shm::PartLanding{.to = landing.box.offset, .extent = landing.box.extent, .addends = {}});
    for (const Addend& addend : landing.addends)
      added.addends.push_back({.pull = addend.pull, .from = addend.from.offset});
  }
}

}  // namespace shardway
