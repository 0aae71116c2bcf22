#include "link/moves/model_moves.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "link/moves/held_versions.h"
#include "ops/call/dtypes.h"

namespace shardway::link {
namespace {

std::vector<ModelMove> moves_in_portion(const std::vector<ModelMove>& moves, int64_t portion) {
  std::vector<ModelMove> found;
  for (const ModelMove& move : moves) {
    if (move.portion == portion) found.push_back(move);
  }
  return found;
}

// The numbers of portions start anew with each role, and those of equal number come together.
int64_t portions_in(const std::vector<ModelMove>& moves) {
  int64_t most = 0;
  for (const ModelMove& move : moves) most = std::max(most, move.portion);
  return most;
}

LoadPieces pieces_of(const PreparedMoves& moves, int64_t rank) {
  LoadPieces pieces;
  for (size_t i = 0; i < moves.moves().size(); ++i) {
    const ModelMove& move = moves.moves()[i];
    if (!moves.is_here(i)) continue;
    const Box box = move.after.box_at(*move.after.mesh().position_of(rank));
    pieces.push_back({.name = move.name, .shape = box.extent, .dtype = scalar_type_of(move.after.dtype())});
  }
  return pieces;
}

// Whether the bytes that move are those of the destination.
bool can_land(const at::Tensor& out, const ModelMove& move, bool is_on_gpus) {
  return out.is_cuda() == is_on_gpus && out.scalar_type() == scalar_type_of(move.after.dtype()) &&
         !out.is_conj() && !out.is_neg();
}

std::string role_text(const RosterRole& role) {
  const int64_t last = role.first_rank + role.size - 1;
  const std::string numbers = role.size == 1
                                  ? " " + std::to_string(last)
                                  : "s " + std::to_string(role.first_rank) + "-" + std::to_string(last);
  return "rank" + numbers + ": role " + role.name;
}

std::string without_first_line(const std::string& text) { return text.substr(text.find('\n') + 1); }

void add_to(std::vector<int64_t>& sums, const std::vector<int64_t>& more) {
  sums.resize(std::max(sums.size(), more.size()));
  for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

}  // namespace

ModelMoves::ModelMoves(const Roster& roster, const Group& group, int64_t rank, const std::string& role)
    : roles_(roster.roles),
      direct_(moves_in_portion(roster.moves, 0)),
      group_(group),
      rank_(rank),
      role_(role) {
  for (int64_t number = 1; number <= portions_in(roster.moves); ++number) {
    PreparedMoves moves(moves_in_portion(roster.moves, number), group, rank, role);
    LoadPieces pieces = pieces_of(moves, rank);
    portions_.push_back({.moves = std::move(moves), .pieces = std::move(pieces)});
  }
}

bool ModelMoves::any_on_gpus() const {
  return std::any_of(direct_.begin(), direct_.end(), [](const ModelMove& move) { return move.is_on_gpus; });
}

void ModelMoves::prepare(const SharedTensors& parts, const TensorsByName& destinations, bool shares_gpu) {
  gpus_ = gpus_of(*parts);
  for (const at::Device& gpu : gpus_of(destinations)) gpus_.push_back(gpu);
  for (const bool is_on_gpus : {false, true}) {
    std::vector<ModelMove> some;
    for (const ModelMove& move : direct_) {
      if ((move.is_on_gpus && shares_gpu) == is_on_gpus) some.push_back(move);
    }
    if (some.empty()) continue;
    moving_.emplace_back(std::move(some), group_, rank_, role_, is_on_gpus);
    prepare_moves(moving_.back(), parts, destinations);
  }
}

void ModelMoves::prepare_moves(PreparedMoves& moving, const SharedTensors& parts,
                               const TensorsByName& destinations) {
  const std::vector<ModelMove>& moves = moving.moves();
  std::vector<at::Tensor> outs(moves.size());
  for (size_t i = 0; i < moves.size(); ++i) {
    if (!moving.is_here(i)) continue;
    const at::Tensor& wanted = destinations.at(moves[i].name);
    if (can_land(wanted, moves[i], moving.is_on_gpus())) outs[i] = wanted;
  }
  const std::vector<at::Tensor> arrived = moving.prepare(parts, outs);
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moving.is_here(i) && !outs[i].defined())
      roundings_.push_back({.destination = destinations.at(moves[i].name), .arrived = arrived[i]});
  }
}

void ModelMoves::run(const SharedTensors& parts, int64_t sets) {
  for (PreparedMoves& moving : moving_) moving.run(parts, sets);
}

void ModelMoves::round() const {
  const at::NoGradGuard no_grad;
  for (const Rounding& rounding : roundings_) rounding.destination.copy_(rounding.arrived);
  wait_for(gpus_);
}

void ModelMoves::bring_portions(const SharedTensors& parts, Loader& loader, int64_t sets) {
  make_room(loader);
  loader.begin();
  for (Portion& portion : portions_) {
    if (portion.moves.call()) {
      portion.moves.run(parts, sets);
    } else {
      prepare_portion(portion, parts, loader);
    }
    loader.take(portion.pieces, portion.places);
  }
}

// All that will be needed, before the first place in it is given away.
void ModelMoves::make_room(Loader& loader) const {
  for (const Portion& portion : portions_) {
    if (!portion.moves.call()) loader.make_room(portion.pieces);
  }
}

void ModelMoves::prepare_portion(Portion& portion, const SharedTensors& parts, const Loader& loader) const {
  portion.places = loader.places(portion.pieces);
  std::vector<at::Tensor> outs(portion.moves.moves().size());
  size_t piece = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    if (portion.moves.is_here(i)) outs[i] = portion.places[piece++];
  }
  portion.moves.prepare(parts, outs);
}

std::vector<const PreparedCall*> ModelMoves::calls() const {
  std::vector<const PreparedCall*> found;
  for (const PreparedMoves& moving : moving_) {
    if (moving.call()) found.push_back(&*moving.call());
  }
  for (const Portion& portion : portions_) {
    if (portion.moves.call()) found.push_back(&*portion.moves.call());
  }
  return found;
}

int64_t ModelMoves::tensors() const {
  size_t count = direct_.size();
  for (const Portion& portion : portions_) count += portion.moves.moves().size();
  return static_cast<int64_t>(count);
}

RunBytes ModelMoves::bytes() const {
  RunBytes sum{.ranks = group_.size()};
  for (const PreparedCall* call : calls()) {
    add_to(sum.sent, call->bytes().sent);
    add_to(sum.least, call->bytes().least);
    sum.exchanges += call->bytes().exchanges;
  }
  return sum;
}

int64_t ModelMoves::staging_bytes() const {
  int64_t bytes = 0;
  for (const Rounding& rounding : roundings_) bytes += static_cast<int64_t>(rounding.arrived.nbytes());
  int64_t largest = 0;
  for (const Portion& portion : portions_) largest = std::max(largest, bytes_of(portion.pieces));
  return bytes + largest;
}

std::string ModelMoves::explain(int64_t held_bytes) const {
  std::string text =
      "one version: " + std::to_string(tensors()) + (tensors() == 1 ? " tensor\n" : " tensors\n");
  for (const RosterRole& role : roles_) text += role_text(role) + "\n";
  for (const PreparedCall* call : calls()) text += without_first_line(call->explain()) + "\n";
  return text + "memory here: " + std::to_string(staging_bytes()) + " B for other dtypes, " +
         std::to_string(held_bytes) + " B for versions held";
}

}  // namespace shardway::link
