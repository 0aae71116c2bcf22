#include "ops/header.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "ops/arguments.h"
#include "ops/block.h"

namespace shardway {
namespace {

int64_t slot_bytes(int64_t ranks) { return std::max(kAllSlotsBytes / ranks / 64 * 64, int64_t{1024}); }

int64_t block_bytes(int64_t ranks) {
  const int64_t bytes = static_cast<int64_t>(sizeof(Header)) + 16 * ranks + slot_bytes(ranks);
  return (bytes + 63) / 64 * 64;
}

void write_problem(const Block& block, const std::string& problem, int64_t ranks) {
  Header& header = block.header();
  header.has_problem = 1;
  header.slot_bytes = std::min(static_cast<int64_t>(problem.size()), slot_bytes(ranks));
  std::memcpy(block.slot(), problem.data(), static_cast<size_t>(header.slot_bytes));
}

void write_payload(const Block& block, const at::Tensor& x, int64_t ranks) {
  const auto bytes = static_cast<int64_t>(x.nbytes());
  if (!x.is_cpu() || bytes > slot_bytes(ranks)) return;
  block.header().slot_bytes = bytes;
  if (bytes > 0)
    std::memcpy(block.slot(), materialized(x).contiguous().const_data_ptr(), static_cast<size_t>(bytes));
}

at::Tensor written(const Call& call, const Group& group) {
  at::Tensor bytes = at::zeros({block_bytes(group.size())}, at::kByte);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header() = Header{};
  Header& header = block.header();
  header.collective = static_cast<uint8_t>(call.collective);
  if (!call.problem.empty()) {
    write_problem(block, call.problem, group.size());
    return bytes;
  }
  header.dtype = static_cast<int8_t>(call.x.scalar_type());
  header.device = static_cast<int8_t>(call.x.device().type());
  header.op = static_cast<uint8_t>(call.op);
  header.grad = static_cast<uint8_t>(call.grad);
  header.requires_grad = call.requires_grad();
  header.dim = static_cast<uint8_t>(call.dim);
  header.ndim = static_cast<uint8_t>(call.x.dim());
  header.out_size = call.out_size;
  std::copy(call.x.sizes().begin(), call.x.sizes().end(), header.shape.begin());
  header.has_sizes = !call.sizes.empty();
  header.has_recv_sizes = !call.recv_sizes.empty();
  std::copy(call.sizes.begin(), call.sizes.end(), block.sizes());
  std::copy(call.recv_sizes.begin(), call.recv_sizes.end(), block.recv_sizes());
  if (call.collective != Collective::gather_sizes) write_payload(block, call.x, group.size());
  return bytes;
}

}  // namespace

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_gather_v", "reduce_scatter_v", "all_to_all_v", "gather_sizes"};
  return kNames.at(static_cast<size_t>(collective));
}

bool Call::requires_grad() const { return x.requires_grad() && at::GradMode::is_enabled(); }

bool checks_every_call() {
  const char* value = std::getenv("SHARDWAY_CHECK");
  return value != nullptr && std::string_view(value) == "1";
}

Agreement agree(const Call& call, const Group& group) {
  at::Tensor blocks = [&] {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return named(name_of(call.collective),
                 [&] { return group.transport().all_gather_block(written(call, group)); });
  }();
  compare(blocks);
  return {call, group, std::move(blocks)};
}

void fail_together(Collective collective, const std::string& problem, const Group& group, bool sizes_known) {
  if (group.distributed() && (!sizes_known || checks_every_call()))
    agree({.collective = collective, .problem = problem}, group);
  raise(name_of(collective), problem, group.rank());
}

Agreement::Agreement(const Call& call, const Group& group, at::Tensor blocks)
    : call_(call), group_(group), blocks_(std::move(blocks)) {}

int64_t Agreement::size_along_dim(int64_t rank) const {
  const Block block(blocks_, rank);
  return block.header().shape[block.header().dim];
}

int64_t Agreement::out_size(int64_t rank) const { return Block(blocks_, rank).header().out_size; }

Sizes Agreement::send_sizes(int64_t rank) const {
  const int64_t* sizes = Block(blocks_, rank).sizes();
  return {sizes, sizes + group_.size()};
}

bool Agreement::any_requires_grad() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (Block(blocks_, rank).header().requires_grad != 0) return true;
  }
  return false;
}

KnownInputs Agreement::known_inputs() const {
  KnownInputs inputs(static_cast<size_t>(group_.size()));
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const Block block(blocks_, rank);
    const Header& header = block.header();
    if (header.slot_bytes < 0) continue;
    const std::vector<int64_t> shape(header.shape.begin(), header.shape.begin() + header.ndim);
    inputs[static_cast<size_t>(rank)] = at::from_blob(
        block.slot(), shape, [owner = blocks_](void*) {}, call_.x.options().requires_grad(false));
  }
  const bool is_any =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.defined(); });
  return is_any ? inputs : KnownInputs{};
}

}  // namespace shardway
