#include "plan/hosts/run_table.h"

namespace shardway {
namespace {

// Whether the box is one run of memory in a contiguous tensor of this shape.
bool is_one_run(const Box& box, const std::vector<int64_t>& shape) {
  size_t d = 0;
  while (d < shape.size() && box.extent[d] == 1) ++d;
  for (++d; d < shape.size(); ++d) {
    if (box.extent[d] != shape[d]) return false;
  }
  return true;
}

int64_t flat_offset(const Box& box, const std::vector<int64_t>& shape) {
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + box.offset[d];
  return offset;
}

}  // namespace

void RunTable::add(const Box& box, int64_t layer) {
  const auto [entry, is_new] = index_of_.try_emplace({layer, box.offset, box.extent}, runs_.size());
  if (!is_new) return;
  runs_.push_back({.box = box, .offset = elements_});
  elements_ += box.volume();
  if (!is_one_run(box, shape_)) is_aside_ = true;
}

int64_t RunTable::offset_of(const Box& box, int64_t layer) const {
  if (!is_aside_) return flat_offset(box, shape_);
  return runs_[index_of_.at({layer, box.offset, box.extent})].offset;
}

}  // namespace shardway
