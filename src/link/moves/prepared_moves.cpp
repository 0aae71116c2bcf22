#include "link/moves/prepared_moves.h"

#include "shardway/memory.h"
#include "shardway/redistribute.h"

namespace shardway::link {

PreparedMoves::PreparedMoves(std::vector<ModelMove> moves, Group group, int64_t rank, std::string role,
                             bool is_on_gpus)
    : moves_(std::move(moves)),
      group_(std::move(group)),
      rank_(rank),
      role_(std::move(role)),
      is_on_gpus_(is_on_gpus) {}

bool PreparedMoves::is_here(size_t move) const {
  return moves_[move].role == role_ && moves_[move].after.mesh().position_of(rank_).has_value();
}

std::vector<at::Tensor> PreparedMoves::given(const TensorsByName& parts) {
  std::vector<at::Tensor> found;
  for (const ModelMove& move : moves_) {
    const bool has_part = move.before.mesh().position_of(rank_).has_value();
    found.push_back(has_part ? placed(move.name, parts.at(move.name)) : at::Tensor());
  }
  return found;
}

at::Tensor PreparedMoves::placed(const std::string& name, const at::Tensor& part) {
  if (!part.defined() || is_on_gpus_ || !part.is_cuda()) return part;
  at::Tensor& copy = copies_[name];
  if (!copy.defined()) copy = empty(part.sizes(), part.scalar_type());
  return copy.copy_(part);
}

std::vector<at::Tensor> PreparedMoves::prepare(const SharedTensors& parts,
                                               const std::vector<at::Tensor>& outs) {
  std::vector<MeshTensor> tensors;
  std::vector<Layout> targets;
  const std::vector<at::Tensor> locals = given(*parts);
  for (size_t i = 0; i < moves_.size(); ++i) {
    tensors.emplace_back(locals[i], moves_[i].before, group_);
    targets.push_back(moves_[i].after);
  }
  auto [results, call] = shardway::prepare([&] { return redistribute(tensors, targets, {.outs = outs}); });
  call_ = std::move(call);
  last_parts_ = parts;
  std::vector<at::Tensor> arrived;
  for (const MeshTensor& result : results) arrived.push_back(result.local());
  return arrived;
}

void PreparedMoves::run(const SharedTensors& parts, int64_t sets) {
  call_->keep_ready(sets);
  if (parts == last_parts_ && copies_.empty()) {
    call_->run();
  } else {
    call_->run(given(*parts));
  }
  last_parts_ = parts;
}

}  // namespace shardway::link
