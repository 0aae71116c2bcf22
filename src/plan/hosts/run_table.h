// Boxes of a tensor in 1-d memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/hosts/two_levels.h"

namespace shardway {

// Where boxes of a tensor lie in 1-d memory: in the tensor itself if each is one run of it, else in memory
// aside, one after another. First all boxes are added, then their offsets are asked for.
class RunTable {
 public:
  RunTable(std::vector<int64_t> shape, bool is_contiguous)
      : shape_(std::move(shape)), is_aside_(!is_contiguous) {}

  void land_aside() { is_aside_ = true; }

  // Boxes of different `layers` have memory of their own, even if they are the same.
  void add(const Box& box, int64_t layer = 0);
  int64_t offset_of(const Box& box, int64_t layer = 0) const;

  bool is_aside() const { return is_aside_; }
  int64_t elements() const { return is_aside_ ? elements_ : Box::whole(shape_).volume(); }
  const std::vector<BoxRun>& runs() const { return runs_; }

 private:
  std::vector<int64_t> shape_;
  bool is_aside_;
  std::map<std::tuple<int64_t, Dims, Dims>, size_t> index_of_;
  std::vector<BoxRun> runs_;
  int64_t elements_ = 0;
};

}  // namespace shardway
