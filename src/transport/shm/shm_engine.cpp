#include "transport/shm/shm_engine.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

#include "shm/calls/all_reduce.h"
#include "shm/calls/execution.h"
#include "transport/memory/tensors.h"
#include "transport/memory/warm_memory.h"
#include "transport/shm/small_runs.h"

namespace shardway {
namespace {

// A payload in a block costs two more copies than a pull, but saves a meeting.
constexpr int64_t kSlotBytes = 16 << 10;

// Longest row of blocks that is kept for the next call: enough for the rows of the collectives.
constexpr int64_t kMostKeptRow = 2 * kSlotBytes;

bool is_any_known(const KnownInputs& known) {
  return std::any_of(known.begin(), known.end(), [](const at::Tensor& input) { return input.defined(); });
}

void run_all_reduce(shm::SharedGroup& group, const RouteCall& moves, const Subject& subject,
                    const shm::Talk* talk = nullptr) {
  const at::Tensor input = moves.x.contiguous();
  const at::Tensor landed = moves.out.is_contiguous() ? moves.out : empty_tensor_like(input);
  const shm::AllReduce all_reduce{.input = static_cast<const std::byte*>(input.const_data_ptr()),
                                  .output = static_cast<std::byte*>(landed.mutable_data_ptr()),
                                  .bytes = static_cast<int64_t>(input.nbytes()),
                                  .how = combination(*moves.route, moves.x.scalar_type())};
  if (group.run(all_reduce, subject, talk) && !landed.is_same(moves.out)) moves.out.copy_(landed);
}

// `block` and `blocks` must outlive the talk.
shm::Talk talk_of(const at::Tensor& block, Blocks& blocks) {
  return {.note = {static_cast<const std::byte*>(block.const_data_ptr()), static_cast<size_t>(block.numel())},
          .rows = static_cast<std::byte*>(blocks.rows.mutable_data_ptr()),
          .row_bytes = blocks.rows.size(1),
          .lengths = blocks.bytes.data()};
}

}  // namespace

ListedRoutes::ListedRoutes(std::span<const RouteCall> calls) {
  int64_t bytes = 0;
  for (const RouteCall& call : calls) {
    if (call.route->pattern == Pattern::all_reduce) {
      all_reduces_.push_back(&call);
      continue;
    }
    ShmPart& part = parts_.emplace_back(*call.route, call.x, call.out, KnownInputs());
    if (call.offsets_unknown) part.list_offsets();
    if (meetings_.empty() || static_cast<int64_t>(meetings_.back().size()) == shm::kMostParts)
      meetings_.emplace_back();
    meetings_.back().push_back(&part.part());
    for (const shm::Pull& pull : part.part().pulls)
      bytes += shm::volume(pull.extent) * part.part().element_bytes;
  }
  for (ShmPart& part : parts_) part.set_list_bytes(bytes);
}

void ListedRoutes::run(shm::SharedGroup& group, const Subject& subject) const {
  for (const RouteCall* call : all_reduces_) run_all_reduce(group, *call, subject);
  for (const shm::PartList& parts : meetings_) group.run(parts, subject);
}

ShmEngine::ShmEngine(std::shared_ptr<shm::SharedGroup> group, PartOfGroup part)
    : group_(std::move(group)), part_(std::move(part)) {}

int64_t ShmEngine::slot_bytes() { return kSlotBytes; }

// Reuses the last rows if nobody reads them any more.
at::Tensor ShmEngine::fresh_rows(int64_t row_bytes) {
  const std::array<int64_t, 2> shape = {group_->size(), row_bytes};
  if (row_bytes > kMostKeptRow) return warm_empty(shape, at::kByte);
  const std::lock_guard lock(rows_mutex_);
  const bool is_free = rows_.defined() && rows_.use_count() == 1 && rows_.storage().use_count() == 1;
  if (!is_free || rows_.size(1) != row_bytes) rows_ = warm_empty(shape, at::kByte);
  return rows_;
}

Blocks ShmEngine::fresh_blocks(int64_t row_bytes) {
  Blocks blocks{.rows = fresh_rows(row_bytes)};
  blocks.bytes.resize(static_cast<size_t>(group_->size()));
  return blocks;
}

Blocks ShmEngine::all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) {
  Blocks blocks;
  in_turn([&](shm::SharedGroup& group) {
    blocks = fresh_blocks(row_bytes);
    group.gather_notes(talk_of(mine, blocks), subject);
    blocks.number = group.calls();
  });
  return blocks;
}

void ShmEngine::meet(const Opening& opening, const Subject& subject, const Decide& decide) {
  in_turn([&](shm::SharedGroup& group) {
    Blocks blocks = fresh_blocks(opening.row_bytes);
    shm::Talk talk = talk_of(opening.block, blocks);
    const bool is_all_reduce =
        opening.known != nullptr && opening.known->route->pattern == Pattern::all_reduce;
    std::optional<shm::ContiguousCall> runs;
    if (opening.known != nullptr && !is_all_reduce) runs = small_runs_of(*opening.known);
    std::optional<ShmPart> part;
    if (!is_all_reduce && !runs) part.emplace(opening.x, opening.pushes);
    std::optional<RouteCall> moves;
    KeptRefusal refusal;
    const auto decide_here = [&] {
      blocks.number = group.calls();
      moves = decide(std::move(blocks));
      if (moves && part) part->complete(*moves->route, moves->x, moves->out, {});
      if (moves && runs && moves->route != opening.known->route) runs = small_runs_of(*moves).value();
      return moves.has_value();
    };
    talk.agrees = [&] { return refusal.passes(decide_here); };
    if (is_all_reduce) {
      run_all_reduce(group, *opening.known, subject, &talk);
    } else if (runs) {
      group.run(*runs, subject, &talk);
    } else {
      group.run(part->part(), subject, &talk);
    }
    refusal.raise_if_any();
  });
}

void ShmEngine::run(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known,
                    const Subject& subject) {
  in_turn([&](shm::SharedGroup& group) {
    if (route.pattern == Pattern::all_reduce && !is_any_known(known))
      return run_all_reduce(group, {&route, x, out}, subject);
    const ShmPart part(route, x, out, known);
    group.run(part.part(), subject);
  });
}

void ShmEngine::run_all(const std::vector<RouteCall>& calls, const Subject& subject) {
  in_turn([&](shm::SharedGroup& group) { ListedRoutes(calls).run(group, subject); });
}

void ShmEngine::run_alone(const Route& route, const at::Tensor& x, const at::Tensor& out,
                          const KnownInputs& known) {
  translated(route.rank, [&] { shm::run_alone(ShmPart(route, x, out, known).part()); });
}

void ShmEngine::in_turn(const std::function<void(shm::SharedGroup&)>& call) {
  const auto run = [&] {
    const std::lock_guard lock(mutex_);
    translated(
        group_->rank(), [&] { call(*group_); }, {}, part_);
  };
  queue_.in_turn(run, [this] { group_->interrupt(); });
}

shm::Subgroup ShmEngine::shrink(std::optional<std::chrono::milliseconds> timeout) {
  TORCH_CHECK_VALUE(!timeout || timeout->count() >= 0, "shrink: timeout=", timeout->count(),
                    " ms is negative (rank ", group_->rank(), ")");
  shm::Subgroup part;
  const auto in_its_name = [&](const auto& body) { translated(group_->rank(), body, "shrink"); };
  in_its_name([&] { group_->revoke(); });
  in_turn([&](shm::SharedGroup& group) { in_its_name([&] { part = group.shrink(timeout); }); });
  return part;
}

std::unique_ptr<Posted> ShmEngine::post(std::function<void()> call) { return queue_.post(std::move(call)); }

}  // namespace shardway
