// What a rank takes in a route between tensors on one GPU, as moves of boxes in its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "cuda/move_table.h"
#include "shardway/route.h"
#include "shm/kernels/reduce.h"

namespace shardway {

class Taking {
 public:
  // Takes memory for addends that no kernel combines. The route must outlive this object.
  Taking(const Route& route, const at::Tensor& out);

  // Where the box of each pull lies, in this process's addresses; empty boxes are not read.
  using Sources = std::vector<cuda::StridedBox>;

  // What kernels have to move, and how they combine it.
  std::vector<cuda::BoxMove> moves(const Sources& sources) const {
    return how_ ? sums(sources) : copies(sources);
  }
  const std::optional<shm::Combine>& how() const { return how_; }

  // Queues what remains when all has been taken.
  void land() const;

 private:
  std::vector<cuda::BoxMove> copies(const Sources& sources) const;
  std::vector<cuda::BoxMove> sums(const Sources& sources) const;

  const Route& route_;
  at::Tensor out_;
  std::vector<Landing> landings_;
  std::optional<shm::Combine> how_;  // if kernels combine
  std::vector<at::Tensor> buffers_;  // by pull, if torch combines
};

cuda::StridedBox box_of(const at::Tensor& t, const Dims& offset);

}  // namespace shardway
