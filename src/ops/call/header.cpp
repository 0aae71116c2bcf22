#include "ops/call/header.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/block.h"
#include "ops/call/numbering.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

using wire::kProblemBytes;
using wire::line_bytes;

int64_t row_bytes(const Group& group) {
  const int64_t bytes = line_bytes(group.size()) + std::max(group.transport().slot_bytes(), kProblemBytes);
  return (bytes + 63) / 64 * 64;
}

Wanted wanted_of(const Call& call, const Group& group) {
  switch (call.collective) {
    case Collective::all_gather_v:
    case Collective::all_reduce:
      return Wanted::whole;
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
    case Collective::gather_v:
      return Wanted::parts;
    case Collective::broadcast:
      return call.root == group.rank() ? Wanted::whole : Wanted::nothing;
    case Collective::scatter_v:
      return call.root == group.rank() ? Wanted::parts : Wanted::nothing;
    default:
      return call.wanted;
  }
}

// Whether x travels in the block.
bool fits_in_slot(const Call& call, const Group& group) {
  const Wanted wanted = wanted_of(call, group);
  if (wanted == Wanted::nothing || !call.x.is_cpu()) return false;
  const int64_t slot = group.transport().slot_bytes();
  return static_cast<int64_t>(call.x.nbytes()) <= (wanted == Wanted::whole ? slot : slot / group.size());
}

// A block with room for `slot_bytes`, its line zero but for the op.
at::Tensor new_block(const Call& call, const Group& group, int64_t slot_bytes) {
  const int64_t line = line_bytes(group.size());
  at::Tensor bytes = warm_empty({line + slot_bytes}, at::kByte);
  std::memset(bytes.mutable_data_ptr<uint8_t>(), 0, static_cast<size_t>(line));
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header() = BlockHeader{};
  block.header().collective = static_cast<uint8_t>(call.collective);
  block.header().root = call.root;
  block.header().is_list = call.is_list;
  if (call.backward_of) {
    block.header().backward_of = static_cast<uint8_t>(call.backward_of->collective) + 1;
    block.header().forward_number = call.backward_of->number;
  }
  return bytes;
}

at::Tensor text_block(const Call& call, const Group& group, const std::string& text) {
  const int64_t length = std::min(static_cast<int64_t>(text.size()), kProblemBytes);
  at::Tensor bytes = new_block(call, group, length);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header().slot_bytes = length;
  std::memcpy(block.slot(), text.data(), static_cast<size_t>(length));
  return bytes;
}

at::Tensor problem_block(const Call& call, const Group& group) {
  at::Tensor bytes = text_block(call, group, call.problem);
  Block(bytes.mutable_data_ptr<uint8_t>(), group.size()).header().has_problem = 1;
  return bytes;
}

// The block of a rank that brings no tensor.
at::Tensor bare_block(const Call& call, const Group& group) {
  at::Tensor bytes = new_block(call, group, 0);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  block.header().has_tensor = 0;
  block.header().dim_without_tensor = call.dim;
  if (call.hash) block.hash() = *call.hash;
  return bytes;
}

// How the others get this rank's tensor.
enum class Brings : uint8_t { in_block_if_small, by_moves };

at::Tensor call_block(const Call& call, const Group& group, Brings brings) {
  const bool is_in_slot = brings == Brings::in_block_if_small && fits_in_slot(call, group);
  const int64_t payload_bytes = is_in_slot ? static_cast<int64_t>(call.x.nbytes()) : 0;
  at::Tensor bytes = new_block(call, group, payload_bytes);
  const Block block(bytes.mutable_data_ptr<uint8_t>(), group.size());
  BlockHeader& header = block.header();
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
  if (call.hash) block.hash() = *call.hash;
  std::copy(call.recv_sizes.begin(), call.recv_sizes.end(), block.recv_sizes());
  if (is_in_slot) header.slot_bytes = payload_bytes;
  if (payload_bytes > 0) {
    const at::Tensor payload = materialized(call.x).contiguous();
    std::memcpy(block.slot(), payload.const_data_ptr(), static_cast<size_t>(payload_bytes));
  }
  return bytes;
}

at::Tensor block_of(const Call& call, const Group& group, Brings brings) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  if (!call.problem.empty()) return problem_block(call, group);
  return call.x.defined() ? call_block(call, group, brings) : bare_block(call, group);
}

constexpr uint64_t kHeaders = shm::mark_of("headers");
constexpr uint64_t kWords = shm::mark_of("words");
constexpr uint64_t kMoves = shm::mark_of("moves");
constexpr uint64_t kGradient = shm::mark_of("gradient");

std::string described(const Call& call) {
  const std::string of_list = call.is_list ? " of a list" : "";
  if (call.backward_of)
    return c10::str("backward of ", name_of(call.backward_of->collective), of_list, " (call ",
                    call.backward_of->number, ")");
  const bool has_shape = call.x.defined() && !call.is_list;
  return c10::str(name_of(call.collective), of_list, has_shape ? c10::str(" of shape ", call.x.sizes()) : "");
}

// Collective.
Blocks gathered(const Call& call, const at::Tensor& mine, const Group& group, uint64_t mark) {
  const Subject subject{.mark = mark, .words = [&call] { return described(call); }};
  return named(name_of(call.collective),
               [&] { return group.transport().all_gather_block(mine, row_bytes(group), subject); });
}

// SHARDWAY_CHECK, in any of the words for yes and no.
bool is_asked_to_check() {
  const char* value = std::getenv("SHARDWAY_CHECK");
  if (value == nullptr) return false;
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  if (word == "1" || word == "true" || word == "on" || word == "yes") return true;
  const bool is_no = word.empty() || word == "0" || word == "false" || word == "off" || word == "no";
  TORCH_CHECK_VALUE(is_no, "SHARDWAY_CHECK=", value, " is neither 1 (true, on, yes) nor 0 (false, off, no)");
  return false;
}

// What the ranks come to by their blocks: collective where they differ in what a hash stands for.
Agreement agreement_in(Blocks blocks, const Call& call, const Group& group) {
  check_blocks(blocks, wire::Slot::tensor);
  compare(blocks.rows);
  // What the hashes stand for is told only where they differ, which every rank sees.
  if (call.hash && !have_same_hash(blocks.rows)) {
    const Blocks words = gathered(call, text_block(call, group, call.words()), group, kWords);
    check_blocks(words, wire::Slot::words);
    compare_words(words.rows);
  }
  return {group, std::move(blocks)};
}

// A box of x for each of those who will take one.
Moves pushes_of(const Call& call, const Group& group) {
  Moves pushes;
  const Wanted wanted = wanted_of(call, group);
  if (wanted == Wanted::nothing) return pushes;
  const Box whole = Box::whole(call.x.sizes().vec());
  int64_t begin = 0;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    Box box = whole;
    const auto d = static_cast<size_t>(call.dim);
    const bool is_split = wanted == Wanted::parts && call.collective != Collective::gather_v;
    if (is_split) {
      box.offset[d] = std::exchange(begin, begin + call.sizes[static_cast<size_t>(rank)]);
      box.extent[d] = begin - box.offset[d];
    }
    const bool is_taker = call.collective != Collective::gather_v || rank == call.root;
    if (is_taker) pushes.push_back({.peer = rank, .mine = box, .theirs = {}});
  }
  return pushes;
}

// What others will take, as far as it is known before anybody is heard.
void show_input(const Call& call, const Group& group, Opening& opening) {
  const at::Tensor& x = call.leg != nullptr ? call.leg->x : call.x;
  if (!x.defined()) return;
  opening.x = materialized(x);
  if (call.leg == nullptr) {
    opening.pushes = pushes_of(call, group);
  } else if (call.leg->route->pattern == Pattern::all_reduce) {
    opening.all_reduce = call.leg;
  } else {
    opening.pushes = call.leg->route->pushes;
  }
}

}  // namespace

const char* name_of(Collective collective) {
  constexpr std::array kNames = {"all_gather_v",  "reduce_scatter_v", "all_to_all_v",       "gather_sizes",
                                 "redistribute",  "distribute",       "all_reduce",         "broadcast",
                                 "gather_v",      "scatter_v",        "shard_dim_alltoall", "mesh_scatter",
                                 "mesh_broadcast"};
  return kNames.at(static_cast<size_t>(collective));
}

CallHash hash_of(const std::string& words) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : words) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return {hash, 0};
}

bool Call::requires_grad() const { return x.defined() && x.requires_grad() && at::GradMode::is_enabled(); }

bool checks_every_call(const at::Tensor& x, const Group& group) {
  return is_asked_to_check() || group.transport().compares_every_call(x);
}

Subject moves_of(const char* name, uint64_t number) {
  return {.mark = number == 0 ? shm::mark_of(name) : shm::mark_of(kMoves, number),
          .words = [name] { return std::string("the moves of ") + name; }};
}

uint64_t gradient_mark(const char* name, uint64_t number) {
  return shm::mark_of(number == 0 ? shm::mark_of(name) ^ kGradient : kGradient, number);
}

std::string gradient_words(const char* name, uint64_t number, at::IntArrayRef shape) {
  return c10::str("backward of ", name, " (call ", number, ") of shape ", shape);
}

uint64_t next_order(uint64_t number) { return number == 0 ? 0 : shm::mark_of(kGradient, number); }

void agree_on_gradient(const Forward& forward, const at::Tensor& grad, const Group& group) {
  if (!group.distributed() || !is_asked_to_check() || group.transport().compares_every_call(grad)) return;
  agree({.collective = forward.collective, .backward_of = forward}, group);
}

bool is_on_device(const at::Tensor& x, const Group& group) {
  return x.defined() && !x.is_cpu() && !group.transport().refuses(x.device());
}

Agreement agree(const Call& call, const Group& group) {
  return numbered(group, [&] {
    const at::Tensor mine = block_of(call, group, Brings::in_block_if_small);
    Blocks blocks = gathered(call, mine, group, kHeaders);
    return agreement_in(std::move(blocks), call, group);
  });
}

void agree_and_move(const Call& call, const Group& group,
                    const std::function<std::optional<RouteCall>(Agreement)>& decide) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  Opening opening{.block = block_of(call, group, Brings::by_moves), .row_bytes = row_bytes(group)};
  if (call.problem.empty()) show_input(call, group, opening);
  const Subject subject{.mark = kHeaders, .words = [&call] { return described(call); }};
  const auto decide_here = [&](Blocks blocks) {
    return decide(agreement_in(std::move(blocks), call, group));
  };
  numbered(group, [&] {
    named(name_of(call.collective), [&] { group.transport().meet(opening, subject, decide_here); });
  });
}

bool skips_exchange(const at::Tensor& x, const Group& group) {
  if (!group.distributed()) return true;
  const bool takes_no_cpu_tensor = group.transport().slot_bytes() == 0;
  return takes_no_cpu_tensor || is_on_device(x, group);
}

void fail_together(Collective collective, const std::string& problem, const Group& group, bool sizes_known,
                   const at::Tensor& x) {
  const bool compares =
      group.distributed() &&
      (!sizes_known || named(name_of(collective), [&] { return checks_every_call(x, group); }));
  if (compares) agree({.collective = collective, .problem = problem}, group);
  raise(name_of(collective), problem, group.rank());
}

Agreement::Agreement(Group group, Blocks blocks) : group_(std::move(group)), blocks_(std::move(blocks)) {}

int64_t Agreement::dim_on(int64_t rank) const { return Block(rows(), rank).header().dim; }

int64_t Agreement::size_along_dim(int64_t rank) const {
  const Block block(rows(), rank);
  return block.header().shape[block.header().dim];
}

int64_t Agreement::out_size(int64_t rank) const { return Block(rows(), rank).header().out_size; }

std::optional<c10::DeviceType> Agreement::device() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const BlockHeader& header = Block(rows(), rank).header();
    if (header.has_tensor != 0) return static_cast<c10::DeviceType>(header.device);
  }
  return std::nullopt;
}

at::ScalarType Agreement::dtype_on(int64_t rank) const {
  return static_cast<at::ScalarType>(Block(rows(), rank).header().dtype);
}

c10::DeviceType Agreement::device_on(int64_t rank) const {
  return static_cast<c10::DeviceType>(Block(rows(), rank).header().device);
}

Sizes Agreement::shape_on(int64_t rank) const {
  const BlockHeader& header = Block(rows(), rank).header();
  return {header.shape.begin(), header.shape.begin() + header.ndim};
}

Sizes Agreement::send_sizes(int64_t rank) const {
  const int64_t* sizes = Block(rows(), rank).sizes();
  return {sizes, sizes + group_.size()};
}

Sizes Agreement::recv_sizes(int64_t rank) const {
  const int64_t* sizes = Block(rows(), rank).recv_sizes();
  return {sizes, sizes + group_.size()};
}

bool Agreement::any_requires_grad() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (Block(rows(), rank).header().requires_grad != 0) return true;
  }
  return false;
}

KnownInputs Agreement::known_inputs() const {
  KnownInputs inputs(static_cast<size_t>(group_.size()));
  bool is_any = false;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const Block block(rows(), rank);
    const BlockHeader& header = block.header();
    if (header.slot_bytes < 0 && header.has_tensor != 0) continue;
    // Of a rank without a tensor nothing is needed: it has sent what it has.
    inputs[static_cast<size_t>(rank)] = at::from_blob(
        block.slot(), shape_on(rank), [owner = rows()](void*) {}, at::dtype(dtype_on(rank)));
    is_any = is_any || header.slot_bytes >= 0;
  }
  const BlockHeader& first = Block(rows(), 0).header();
  const auto collective = static_cast<Collective>(first.collective);
  if (collective == Collective::broadcast || collective == Collective::scatter_v) {
    // Where one rank alone gives, nothing is needed of the others.
    inputs.assign(inputs.size(), at::Tensor(inputs[static_cast<size_t>(first.root)]));
    is_any = inputs[0].defined();
  }
  return is_any ? inputs : KnownInputs{};
}

}  // namespace shardway
