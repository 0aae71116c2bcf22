#include "transport/common/reduce.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <type_traits>

#include "transport/memory/tensors.h"

namespace shardway {
namespace {

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<at::Half> {
  using type = float;
};
template <>
struct Accumulator<at::BFloat16> {
  using type = float;
};
template <class T>
inline constexpr bool kIsComplex = false;
template <class T>
inline constexpr bool kIsComplex<c10::complex<T>> = true;

template <Op op, class A>
A combine(A a, A b) {
  if constexpr (op == Op::min || op == Op::max) {
    static_assert(!kIsComplex<A>);
    if constexpr (std::is_floating_point_v<A>) {
      if (a != a) return a;  // the result is NaN wherever a NaN stands among the addends
      if (b != b) return b;
    }
    if constexpr (op == Op::min) return b < a ? b : a;
    return a < b ? b : a;
  } else if constexpr (std::is_same_v<A, bool>) {
    return op == Op::sum ? (a || b) : (a && b);
  } else if constexpr (op == Op::product) {
    return static_cast<A>(a * b);
  } else {
    return static_cast<A>(a + b);
  }
}

template <class A>
A divide(A sum, int64_t divisor) {
  if constexpr (kIsComplex<A>) {
    return sum / static_cast<typename A::value_type>(divisor);
  } else if constexpr (std::is_floating_point_v<A>) {
    return sum / static_cast<A>(divisor);
  } else {
    return sum;  // argument checks refuse avg of integers
  }
}

// A block of accumulators stays in the first-level cache while every addend passes over it once.
constexpr int64_t kBlock = 2048;
constexpr int64_t kGrain = 32768;

template <Op op, class T>
void reduce_loop(T* out, const std::vector<const T*>& addends, int64_t count, int64_t divisor) {
  using A = typename Accumulator<T>::type;
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    std::array<A, kBlock> sums;
    for (int64_t start = begin; start < end; start += kBlock) {
      const int64_t length = std::min(kBlock, end - start);
      for (int64_t i = 0; i < length; ++i) sums[i] = static_cast<A>(addends[0][start + i]);
      for (size_t a = 1; a < addends.size(); ++a) {
        const T* from = addends[a] + start;
        for (int64_t i = 0; i < length; ++i) sums[i] = combine<op, A>(sums[i], static_cast<A>(from[i]));
      }
      if (divisor != 1) {
        for (int64_t i = 0; i < length; ++i) sums[i] = divide(sums[i], divisor);
      }
      for (int64_t i = 0; i < length; ++i) out[start + i] = static_cast<T>(sums[i]);
    }
  });
}

template <class T>
void reduce_as(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor) {
  std::vector<const T*> from;
  from.reserve(addends.size());
  for (const at::Tensor& addend : addends) from.push_back(static_cast<const T*>(addend.const_data_ptr()));
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t count = out.numel();
  switch (op) {
    case Op::product:
      return reduce_loop<Op::product>(to, from, count, divisor);
    case Op::min:
    case Op::max:
      if constexpr (kIsComplex<T>) {
        TORCH_CHECK_VALUE(false, name_of(op), " of complex numbers is not defined");
      } else if (op == Op::min) {
        return reduce_loop<Op::min>(to, from, count, divisor);
      } else {
        return reduce_loop<Op::max>(to, from, count, divisor);
      }
    default:
      return reduce_loop<Op::sum>(to, from, count, divisor);
  }
}

void reduce_contiguous_on_cpu(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op,
                              int64_t divisor) {
  AT_DISPATCH_V2(out.scalar_type(), "shardway_reduce",
                 AT_WRAP([&] { reduce_as<scalar_t>(out, addends, op, divisor); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kHalf,
                 at::kBFloat16, at::kBool);
}

at::Tensor combine_on_device(const at::Tensor& a, const at::Tensor& b, Op op) {
  switch (op) {
    case Op::min:
      return a.minimum(b);
    case Op::max:
      return a.maximum(b);
    case Op::product:
      return a.mul(b);
    default:
      return a.add(b);
  }
}

at::Tensor combined_on_device(const std::vector<at::Tensor>& addends, Op op) {
  at::Tensor sum = addends[0];
  for (size_t i = 1; i < addends.size(); ++i) sum = combine_on_device(sum, addends[i], op);
  return sum;
}

std::optional<at::ScalarType> signed_twin(at::ScalarType dtype) {
  switch (dtype) {
    case at::kUInt16:
      return at::kShort;
    case at::kUInt32:
      return at::kInt;
    case at::kUInt64:
      return at::kLong;
    default:
      return std::nullopt;
  }
}

// Few device kernels support these dtypes. The signed dtype of the same width has the same sums and products
// and, once the highest bit is flipped, the same order.
void reduce_as_signed(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op,
                      at::ScalarType twin) {
  const int64_t highest_bit = std::numeric_limits<int64_t>::min() >> (64 - 8 * out.element_size());
  const bool compares = op == Op::min || op == Op::max;
  const auto flipped = [&](const at::Tensor& t) { return compares ? t.bitwise_xor(highest_bit) : t; };
  std::vector<at::Tensor> as_signed;
  as_signed.reserve(addends.size());
  for (const at::Tensor& addend : addends) as_signed.push_back(flipped(addend.view(twin)));
  out.view(twin).copy_(flipped(combined_on_device(as_signed, op)));
}

void reduce_on_device(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor) {
  const auto dtype = out.scalar_type();
  if (const auto twin = signed_twin(dtype)) return reduce_as_signed(out, addends, op, *twin);
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  std::vector<at::Tensor> wide = addends;  // a wide first addend makes a wide sum
  if (is_half) wide[0] = wide[0].to(at::kFloat);
  at::Tensor sum = combined_on_device(wide, op);
  if (divisor != 1) sum = sum.div(divisor);
  out.copy_(sum);
}

}  // namespace

void reduce_into(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor) {
  if (!out.is_cpu()) return reduce_on_device(out, addends, op, divisor);
  std::vector<at::Tensor> contiguous;
  contiguous.reserve(addends.size());
  for (const at::Tensor& addend : addends) contiguous.push_back(addend.contiguous());
  if (out.is_contiguous()) return reduce_contiguous_on_cpu(out, contiguous, op, divisor);
  const at::Tensor packed = empty_tensor(out.sizes(), out.options());
  reduce_contiguous_on_cpu(packed, contiguous, op, divisor);
  out.copy_(packed);
}

}  // namespace shardway
