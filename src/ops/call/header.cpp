#include "ops/call/header.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/block.h"
#include "ops/call/capture.h"
#include "ops/call/layouts_asked.h"
#include "ops/call/numbering.h"
#include "transport/common/giving_up.h"
#include "transport/common/torch_kinds.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

constexpr uint64_t kWords = shm::mark_of("words");
constexpr uint64_t kMoves = shm::mark_of("moves");
constexpr uint64_t kGradient = shm::mark_of("gradient");

std::string described(const Call& call) {
  if (call.backward_of)
    return c10::str("backward of ", name_of(call.backward_of->collective), " (call ",
                    call.backward_of->number, ")");
  const bool is_list = call.list_length != 0;
  const std::string shape = call.x.defined() ? c10::str(" of shape ", call.x.sizes()) : "";
  return c10::str(name_of(call.collective), is_list ? " of a list" : shape);
}

// Whether SHARDWAY_CHECK says yes. Throws c10::ValueError if it says neither yes nor no.
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

// A box of x for each rank that will take one.
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
    if (!is_taker) continue;
    Move& push = pushes.emplace_back();
    push.peer = rank;
    push.mine = box;
  }
  return pushes;
}

// Adds to the opening what others will take, as far as this rank knows it before it hears anybody.
void show_input(const Call& call, const Group& group, Opening& opening) {
  const at::Tensor& x = call.leg != nullptr ? call.leg->x : call.x;
  if (!x.defined()) return;
  opening.x = materialized(x);
  if (call.leg == nullptr) {
    opening.pushes = pushes_of(call, group);
  } else if (call.leg->route->pattern == Pattern::all_reduce) {
    opening.known = call.leg;
  } else {
    opening.pushes = call.leg->route->pushes;
  }
}

// Whether a rank takes part in a redistribution without knowing how the tensors lie: its block says nothing.
bool asks_for_layouts(const wire::BlockRows& blocks) {
  if (blocks[0].collective() != Collective::redistribute) return false;
  for (int64_t rank = 0; rank < blocks.size(); ++rank) {
    const BlockHeader& header = blocks.header(rank);
    if (!header.has_tensor && !header.has_hash && header.backward_of == 0) return true;
  }
  return false;
}

}  // namespace

Blocks gathered(const Call& call, const at::Tensor& mine, int64_t row_bytes, const Group& group,
                uint64_t mark) {
  const Subject subject{
      .mark = mark, .name = name_of(call.collective), .words = [&call] { return described(call); }};
  Transport& transport = group.transport();
  return named(name_of(call.collective), [&] {
    return or_give_up(transport, [&] { return transport.all_gather_block(mine, row_bytes, subject); });
  });
}

Agreement agreement_in(Blocks blocks, const Call& call, const Group& group, int64_t index) {
  check_blocks(blocks, wire::Slot::tensor);
  raise_if_any(wire::disagreement(rows_of(blocks), kinds_of_torch(), index));
  if (asks_for_layouts(rows_of(blocks)))
    throw LayoutsAsked({__func__, __FILE__, __LINE__}, "redistribute: a rank brings no tensor");
  // The ranks tell what the hashes stand for only if these differ, which every rank sees.
  if (call.hash && !wire::have_same_hash(rows_of(blocks))) {
    const at::Tensor mine = text_block(call, group, call.words());
    const Blocks words = gathered(call, mine, row_bytes(group), group, kWords);
    check_blocks(words, wire::Slot::words);
    raise_if_any(wire::disagreement_in_words(rows_of(words)));
  }
  return {group, std::move(blocks)};
}

CallHash hash_of(const std::string& words) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : words) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return {hash, 0};
}

bool Call::requires_grad() const { return x.defined() && x.requires_grad() && at::GradMode::is_enabled(); }

bool checks_every_call(const at::Tensor& x, const Group& group) {
  return is_asked_to_check() || Capture::current() != nullptr || group.transport().compares_every_call(x);
}

Subject moves_of(const char* name, uint64_t number) {
  return {.mark = number == 0 ? shm::mark_of(name) : shm::mark_of(kMoves, number),
          .name = name,
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

int64_t slot_bytes_of(const Group& group, const char* op) {
  return named(op, [&] { return group.transport().slot_bytes(); });
}

Agreement agree(const Call& call, const Group& group) {
  return numbered(group, [&] {
    const int64_t slot_bytes = slot_bytes_of(group, name_of(call.collective));
    const at::Tensor mine = block_of(call, group, slot_bytes);
    Blocks blocks = gathered(call, mine, row_bytes(group), group, kHeaders);
    return agreement_in(std::move(blocks), call, group);
  });
}

void agree_and_move(const Call& call, const Group& group,
                    const std::function<std::optional<RouteCall>(Agreement)>& decide, KeptCall* kept) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  Opening opening{.block = block_of(call, group, /*slot_bytes=*/-1), .row_bytes = row_bytes(group)};
  if (call.problem.empty()) show_input(call, group, opening);
  const Subject subject{
      .mark = kHeaders, .name = name_of(call.collective), .words = [&call] { return described(call); }};
  const auto decide_here = [&](Blocks blocks) {
    if (kept != nullptr) kept->hear(blocks);
    return decide(agreement_in(std::move(blocks), call, group));
  };
  numbered(group, [&] {
    named(name_of(call.collective), [&] { group.transport().meet(opening, subject, decide_here); });
  });
  if (kept == nullptr) return;
  kept->opening = std::move(opening);
  kept->opening.x.reset();
  kept->opening.known = nullptr;
}

void agree_again(KeptCall& kept, KeptCalls& calls, const RouteCall& moves, const Group& group,
                 const std::function<Call()>& read,
                 const std::function<std::optional<RouteCall>(const Call&, Agreement)>& decide) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const char* name = name_of(kept.collective());
  Opening& opening = kept.opening;
  opening.x = moves.x;
  opening.known = &moves;
  const Subject subject{.mark = kHeaders, .name = name, .words = [&read] { return described(read()); }};
  const auto decide_here = [&](Blocks blocks) -> std::optional<RouteCall> {
    if (kept.is_heard_again(blocks)) return moves;
    const Call call = read();
    return decide(call, agreement_in(std::move(blocks), call, group));
  };
  numbered(group, [&] { named(name, [&] { calls.transport().meet(opening, subject, decide_here); }); });
  opening.x.reset();
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

Agreement::Agreement(Group group, Blocks blocks)
    : group_(std::move(group)), blocks_(std::move(blocks)), rows_(rows_of(blocks_)) {}

int64_t Agreement::dim_on(int64_t rank) const { return header(rank).dim; }

int64_t Agreement::size_along_dim(int64_t rank) const { return block(rank).extent(); }

int64_t Agreement::out_size(int64_t rank) const { return header(rank).out_size; }

std::optional<c10::DeviceType> Agreement::device() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (header(rank).has_tensor) return device_on(rank);
  }
  return std::nullopt;
}

at::ScalarType Agreement::dtype_on(int64_t rank) const {
  return static_cast<at::ScalarType>(header(rank).dtype);
}

c10::DeviceType Agreement::device_on(int64_t rank) const {
  return static_cast<c10::DeviceType>(header(rank).device);
}

Sizes Agreement::shape_on(int64_t rank) const {
  const BlockView told = block(rank);
  return {told.shape(), told.shape() + told.header().ndim};
}

Sizes Agreement::send_sizes(int64_t rank) const {
  const BlockView told = block(rank);
  if (!told.header().has_sizes) return Sizes(static_cast<size_t>(group_.size()));
  return {told.sizes(), told.sizes() + group_.size()};
}

Sizes Agreement::recv_sizes(int64_t rank) const {
  const BlockView told = block(rank);
  if (!told.header().has_recv_sizes) return Sizes(static_cast<size_t>(group_.size()));
  return {told.recv_sizes(), told.recv_sizes() + group_.size()};
}

bool Agreement::any_requires_grad() const {
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    if (header(rank).requires_grad) return true;
  }
  return false;
}

void Agreement::compare(wire::Point point, int64_t first, int64_t other) const {
  raise_if_any(wire::disagreement_on(point, rows_, kinds_of_torch(), first, other));
}

KnownInputs Agreement::known_inputs() const {
  KnownInputs inputs(static_cast<size_t>(group_.size()));
  bool is_any = false;
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    const BlockView told = block(rank);
    const bool is_here = told.header().slot_bytes >= 0;
    if (!is_here && told.header().has_tensor) continue;
    // Nothing more is needed from a rank without a tensor: it has sent all it has.
    inputs[static_cast<size_t>(rank)] = at::from_blob(
        told.slot(), shape_on(rank), [owner = blocks_.rows](void*) {}, at::dtype(dtype_on(rank)));
    is_any = is_any || is_here;
  }
  const Collective collective = block(0).collective();
  if (collective == Collective::broadcast || collective == Collective::scatter_v) {
    // Only the root gives data; nothing is needed from the other ranks.
    inputs.assign(inputs.size(), at::Tensor(inputs[static_cast<size_t>(header(0).root)]));
    is_any = inputs[0].defined();
  }
  return is_any ? inputs : KnownInputs{};
}

}  // namespace shardway
