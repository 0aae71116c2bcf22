// What moves in a version, between all ranks of all jobs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "link/moves/loader.h"
#include "link/moves/prepared_moves.h"
#include "link/moves/roster.h"
#include "shardway/group.h"
#include "shardway/prepare.h"

namespace shardway::link {

// Tensors move by one prepared call, and by one more for each portion of Loads. Every rank of the joint group
// makes the same calls, in the same order.
class [[gnu::visibility("default")]] ModelMoves {
 public:
  ModelMoves(const Roster& roster, const Group& group, int64_t rank, const std::string& role);

  // Whether a tensor is on GPUs on both sides.
  bool any_on_gpus() const;

  // Collective: the first version, to destinations that are tensors. If the ranks share one GPU, tensors that
  // are there on both sides stay there.
  void prepare(const SharedTensors& parts, const TensorsByName& destinations, bool shares_gpu);

  // Collective: the next version, into the same destinations; `sets` of parts alternate.
  void run(const SharedTensors& parts, int64_t sets);

  // Local: writes what has arrived in another dtype, or beside its device, and waits for the GPUs of this
  // rank's tensors. A version has moved when it is there.
  void round() const;

  // Collective: what goes to functions, portion by portion, after the rest of the version.
  void bring_portions(const SharedTensors& parts, Loader& loader, int64_t sets);
  bool has_portions() const { return !portions_.empty(); }

  // After the first version.
  int64_t tensors() const;
  RunBytes bytes() const;
  int64_t staging_bytes() const;  // of this rank, for what cannot land where it belongs
  std::string explain(int64_t held_bytes) const;

 private:
  // A destination of another dtype or device, and where its values arrive first.
  struct Rounding {
    at::Tensor destination;
    at::Tensor arrived;
  };

  // What comes for Loads together.
  struct Portion {
    PreparedMoves moves;
    LoadPieces pieces;                    // of this rank
    std::vector<at::Tensor> places = {};  // of the pieces, in the loader's buffer
  };

  void prepare_moves(PreparedMoves& moves, const SharedTensors& parts, const TensorsByName& destinations);
  void make_room(Loader& loader) const;
  void prepare_portion(Portion& portion, const SharedTensors& parts, const Loader& loader) const;
  std::vector<const PreparedCall*> calls() const;

  std::vector<RosterRole> roles_;
  std::vector<ModelMove> direct_;
  Group group_;
  int64_t rank_;
  std::string role_;
  std::vector<PreparedMoves> moving_ = {};  // of the CPU, and of GPUs; made with the first version
  std::vector<Portion> portions_ = {};
  std::vector<Rounding> roundings_ = {};
  std::vector<at::Device> gpus_ = {};  // of this rank's tensors
};

}  // namespace shardway::link
