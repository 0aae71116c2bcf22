#include "link/moves/overlap.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace shardway::link {
namespace {

// Bytes of a storage, of which the tensor may leave some out.
struct Extent {
  const std::string* name;
  const at::Tensor* tensor;
  int64_t begin;
  int64_t end;
};

using Extents = std::vector<Extent>;

Extent extent_of(const std::string& name, const at::Tensor& tensor) {
  const int64_t each = tensor.element_size();
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const int64_t begin = tensor.storage_offset() * each;
  return {&name, &tensor, begin, begin + (last + 1) * each};
}

// Whether each dim strides over all that the smaller strides reach, so that no two elements are one.
bool is_simple(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) dims.emplace_back(tensor.stride(d), tensor.size(d));
  std::sort(dims.begin(), dims.end());
  int64_t reach = 1;
  for (const auto& [stride, length] : dims) {
    if (length > 1 && stride < reach) return false;
    reach += stride * (length - 1);
  }
  return true;
}

// The places of `owner` that stand for the tensor's bytes.
at::Tensor units_of(const at::Tensor& owner, const Extent& extent, int64_t first, int64_t unit) {
  const int64_t each = extent.tensor->element_size() / unit;
  std::vector<int64_t> sizes = extent.tensor->sizes().vec();
  std::vector<int64_t> strides = extent.tensor->strides().vec();
  for (int64_t& stride : strides) stride *= each;
  sizes.push_back(each);
  strides.push_back(1);
  return owner.as_strided(sizes, strides, (extent.begin - first) / unit);
}

// Of destinations whose bytes from begin to end meet.
void add_overlaps_in(const Extents& some, std::vector<std::string>& lines) {
  if (some.size() == 1 && is_simple(*some[0].tensor)) return;
  int64_t unit = 0;
  int64_t end = 0;
  for (const Extent& extent : some) {
    unit = std::gcd(unit, extent.tensor->element_size());
    end = std::max(end, extent.end);
  }
  const int64_t first = some[0].begin;
  const at::Tensor owner = at::full({(end - first) / unit}, -1, at::kInt);
  for (size_t number = 0; number < some.size(); ++number) {
    const Extent& extent = some[number];
    const at::Tensor mine = units_of(owner, extent, first, unit);
    const auto taken = mine.max().item<int64_t>();
    if (taken >= 0) {
      lines.push_back(*extent.name + ": the destination overlaps that of " +
                      *some[static_cast<size_t>(taken)].name);
    }
    mine.fill_(static_cast<int64_t>(number));
    const bool is_shared = !is_simple(*extent.tensor) &&
                           owner.eq(static_cast<int64_t>(number)).sum().item<int64_t>() < mine.numel();
    if (is_shared) lines.push_back(*extent.name + ": elements of the destination overlap one another");
  }
}

void add_overlaps(Extents extents, std::vector<std::string>& lines) {
  std::stable_sort(extents.begin(), extents.end(),
                   [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  Extents some;
  int64_t end = 0;
  for (const Extent& extent : extents) {
    if (!some.empty() && extent.begin >= end) {
      add_overlaps_in(some, lines);
      some.clear();
    }
    end = some.empty() ? extent.end : std::max(end, extent.end);
    some.push_back(extent);
  }
  if (!some.empty()) add_overlaps_in(some, lines);
}

}  // namespace

std::vector<std::string> overlaps(const TensorsByName& tensors) {
  std::map<const void*, Extents> by_storage;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && tensor.numel() > 0)
      by_storage[tensor.storage().data()].push_back(extent_of(name, tensor));
  }
  std::vector<std::string> lines;
  for (const auto& [_, extents] : by_storage) add_overlaps(extents, lines);
  return lines;
}

}  // namespace shardway::link
