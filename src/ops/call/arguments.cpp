#include "ops/call/arguments.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "ops/call/header.h"
#include "transport/common/transport.h"

namespace shardway {
namespace {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw BadArgument(c10::str(parts...));
}

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

AddressRange addresses_of(const at::Tensor& t) {
  int64_t last = 0;  // strides are never negative
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  const auto begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  return {.begin = begin, .end = begin + static_cast<uintptr_t>((last + 1) * t.element_size())};
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const AddressRange in_a = addresses_of(a);
  const AddressRange in_b = addresses_of(b);
  return in_a.begin < in_b.end && in_b.begin < in_a.end;
}

// The first numbers only, to keep messages short.
std::string shown(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 16;
  std::string text;
  for (size_t i = 0; i < std::min(numbers.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return numbers.size() > kMost ? text + ", ..." : text;
}

}  // namespace

void check_dense(const at::Tensor& x, const char* name) {
  if (!x.defined()) refuse(name, " is not a tensor");
  if (x.layout() != at::kStrided)
    refuse(name, " has layout ", x.layout(), ": only dense (Strided) tensors move");
  if (x.is_quantized())
    refuse(name, " is quantized (", dtype_name(x.scalar_type()), "): pass its int_repr() or dequantize()");
  if (x.is_nested()) refuse(name, " is a nested tensor: pass its values()");
  if (x.dim() > kMaxDims) refuse(name, " has ", x.dim(), " dims; the limit is ", kMaxDims);
}

void check_movable(const at::Tensor& x, const Group& group, const char* name) {
  check_dense(x, name);
  if (!group.distributed()) return;
  if (x.is_meta()) refuse(name, " is on the meta device and holds no data");
  if (x.unsafeGetTensorImpl()->is_python_dispatch()) {
    refuse(name, " is a tensor subclass that holds no data of its own: pass the plain tensor inside it");
  }
  if (const auto why = group.transport().refuses(x.device())) refuse(*why);
}

int64_t checked_root(const std::string& name, int64_t global, std::optional<int64_t> in_group,
                     const Group& group) {
  if (in_group) {
    if (global != 0) refuse("both ", name, "=", global, " and group_", name, "=", *in_group, " are given");
    if (*in_group < 0 || *in_group >= group.size())
      refuse("group_", name, "=", *in_group, " is not a rank of a group of ", group.size());
    return *in_group;
  }
  const std::vector<int64_t> ranks = group.global_ranks();
  const auto found = std::find(ranks.begin(), ranks.end(), global);
  if (found == ranks.end()) refuse(name, "=", global, " is not in the group, whose ranks are ", shown(ranks));
  return found - ranks.begin();
}

int64_t checked_dim(const at::Tensor& x, int64_t dim, const Group& group) {
  check_movable(x, group);
  if (x.dim() == 0) refuse("x is a 0-d tensor and has no dim to split along: pass x.unsqueeze(0)");
  if (dim < -x.dim() || dim >= x.dim()) refuse("dim=", dim, " is out of range for a ", x.dim(), "-d tensor");
  return dim < 0 ? dim + x.dim() : dim;
}

void check_size_list(const char* name, const Sizes& sizes, const Group& group) {
  if (static_cast<int64_t>(sizes.size()) != group.size()) {
    refuse(name, " has ", sizes.size(), " entries for ", group.size(),
           group.size() == 1 ? " rank" : " ranks");
  }
  for (size_t r = 0; r < sizes.size(); ++r) {
    if (sizes[r] < 0) refuse(name, "[", r, "]=", sizes[r], " is negative");
  }
}

int64_t checked_total(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim) {
  int64_t total = 0;
  for (int64_t size : sizes) {
    if (__builtin_add_overflow(total, size, &total)) refuse(name, " add up to more than 2^63 - 1");
  }
  int64_t bytes = total;
  bool is_too_much = __builtin_mul_overflow(bytes, x.element_size(), &bytes);
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != dim) is_too_much = is_too_much || __builtin_mul_overflow(bytes, x.size(d), &bytes);
  }
  if (is_too_much && x.numel() > 0)
    refuse(name, " add up to ", total, ", which makes more than 2^63 - 1 bytes");
  return total;
}

void check_split(const char* name, const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group) {
  check_size_list(name, sizes, group);
  const int64_t total = checked_total(name, sizes, x, dim);
  if (total != x.size(dim))
    refuse(name, " add up to ", total, ", but x has ", x.size(dim), " along dim ", dim);
}

void check_gathered(const Sizes& sizes, const at::Tensor& x, int64_t dim, const Group& group) {
  check_size_list("sizes", sizes, group);
  checked_total("sizes", sizes, x, dim);
  const int64_t given = sizes[static_cast<size_t>(group.rank())];
  if (given != x.size(dim)) {
    refuse("sizes[", group.rank(), "]=", given, " is not this rank's own size, which is ", x.size(dim),
           " along dim ", dim);
  }
}

void check_out(const at::Tensor& out, const at::Tensor& x, int64_t dim) {
  if (out.layout() != at::kStrided)
    refuse("out has layout ", out.layout(), ": only dense (Strided) tensors can take a result");
  if (out.scalar_type() != x.scalar_type()) {
    refuse("out has dtype ", dtype_name(out.scalar_type()), ", but x has ", dtype_name(x.scalar_type()));
  }
  if (out.device() != x.device()) refuse("out is on ", out.device(), ", but x is on ", x.device());
  if (out.dim() != x.dim()) refuse("out has ", out.dim(), " dims, but x has ", x.dim());
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (d != dim && out.size(d) != x.size(d)) {
      refuse("out has shape ", out.sizes(), ", but must have x's extent ", x.size(d), " along dim ", d);
    }
  }
  if (out.requires_grad()) refuse("out requires grad: pass a tensor that does not, or out.detach()");
  check_apart(out, x);
}

void check_apart(const at::Tensor& out, const at::Tensor& x) {
  if (at::has_internal_overlap(out) == at::MemOverlap::Yes)
    refuse("out overlaps itself: several of its elements share memory");
  if (share_memory(out, x)) refuse("out overlaps x");
}

void check_reduction(const at::Tensor& x, Op op) {
  const auto dtype = x.scalar_type();
  if (at::isFloat8Type(dtype) || dtype == at::kComplexHalf) {
    const std::string kind = dtype == at::kComplexHalf ? dtype_name(dtype) : "float8";
    refuse("op='", name_of(op), "' of ", dtype_name(dtype), " is not defined: ", kind,
           " tensors can only be moved");
  }
  const bool is_exact = at::isIntegralType(dtype, /*includeBool=*/true);
  if (op == Op::avg && is_exact)
    refuse("op='avg' of ", dtype_name(dtype), " is not defined: convert to a floating dtype");
  if ((op == Op::min || op == Op::max) && at::isComplexType(dtype)) {
    refuse("op='", name_of(op), "' of ", dtype_name(dtype), " is not defined");
  }
  if (op != Op::sum && op != Op::avg && x.requires_grad() && at::GradMode::is_enabled()) {
    refuse("op='", name_of(op), "' has no gradient, but x requires grad: pass x.detach()");
  }
}

at::Tensor materialized(const at::Tensor& x) {
  if (x._is_zerotensor()) return x.clone();
  return x.resolve_conj().resolve_neg();
}

void raise(const std::string& op, const std::string& problem, int64_t rank) {
  C10_THROW_ERROR(ValueError, c10::str(op, ": ", problem, " (rank ", rank, ")"));
}

std::string numbering_of(const std::vector<int64_t>& global_ranks) {
  for (size_t rank = 0; rank < global_ranks.size(); ++rank) {
    if (global_ranks[rank] == static_cast<int64_t>(rank)) continue;
    return " (ranks are those of the group, whose global ranks are " + shown(global_ranks) + ")";
  }
  return {};
}

std::string dtype_name(at::ScalarType dtype) { return std::string(c10::getDtypeNames(dtype).first); }

}  // namespace shardway
