// Tensors on their way to roles, and the one prepared call that moves some of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/moves/declaration.h"
#include "link/moves/roster.h"
#include "shardway/group.h"
#include "shardway/prepare.h"

namespace shardway::link {

// All ranks of the joint group have the same moves, and prepare and run them together.
class PreparedMoves {
 public:
  // Unless the moves are on GPUs, parts that are there are copied to the CPU first.
  PreparedMoves(std::vector<ModelMove> moves, Group group, int64_t rank, std::string role,
                bool is_on_gpus = false);

  const std::vector<ModelMove>& moves() const { return moves_; }
  bool is_on_gpus() const { return is_on_gpus_; }
  bool is_here(size_t move) const;  // whether this rank has a destination of it
  const std::optional<PreparedCall>& call() const { return call_; }

  // Moves `parts` for the first time, into `outs` if they are defined. Returns this rank's part of each
  // result.
  std::vector<at::Tensor> prepare(const SharedTensors& parts, const std::vector<at::Tensor>& outs);

  // Again, from `parts`, of which so many sets alternate.
  void run(const SharedTensors& parts, int64_t sets);

 private:
  std::vector<at::Tensor> given(const TensorsByName& parts);
  at::Tensor placed(const std::string& name, const at::Tensor& part);

  std::vector<ModelMove> moves_;
  Group group_;
  int64_t rank_;
  std::string role_;
  bool is_on_gpus_;
  std::optional<PreparedCall> call_;
  SharedTensors last_parts_;
  TensorsByName copies_;
};

}  // namespace shardway::link
