#include "shardway/prepare.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "ops/call/arguments.h"
#include "ops/call/block.h"
#include "ops/call/capture.h"
#include "ops/call/numbering.h"
#include "transport/common/giving_up.h"
#include "transport/common/repeated_moves.h"
#include "transport/memory/tensors.h"

namespace shardway {
namespace {

constexpr uint64_t kPrepared = shm::mark_of("prepared");
constexpr uint64_t kRefused = shm::mark_of("refused");

// Where a tensor lies, and its shape. Moves are prepared for it. Nothing of it is on the heap for a tensor of
// few dims: every run compares the places of all tensors.
struct Lies {
  const void* data = nullptr;
  c10::DimVector sizes = {};
  c10::DimVector strides = {};

  static Lies of(const at::Tensor& t) {
    return {.data = t.const_data_ptr(),
            .sizes = c10::DimVector(t.sizes()),
            .strides = c10::DimVector(t.strides())};
  }

  bool is_of(const at::Tensor& t) const {
    return t.const_data_ptr() == data && t.sizes() == at::IntArrayRef(sizes) &&
           t.strides() == at::IntArrayRef(strides);
  }
};

// Moves that are prepared for tensors where these lie.
struct Ready {
  std::vector<std::unique_ptr<RepeatedMoves>> moves = {};  // by round; null if it has none with others
  std::vector<Lies> places = {};                           // of the tensors that are used
};

bool is_read(const Route& route) {
  const auto is_own = [&](const Move& pull) { return pull.peer == route.rank; };
  return route.pattern == Pattern::all_reduce || !route.pushes.empty() ||
         std::any_of(route.pulls.begin(), route.pulls.end(), is_own);
}

bool is_written(const Route& route) { return route.pattern == Pattern::all_reduce || !route.pulls.empty(); }

const void* memory_of(const at::Tensor& t) { return t.storage().unsafeGetStorageImpl(); }

// How an all-reduce spreads over the ranks: whole addends, or shares that are combined and collected.
void add_all_reduce(const RouteCall& call, Transport& transport, std::vector<int64_t>& sent) {
  const int64_t bytes = static_cast<int64_t>(call.x.nbytes());
  const bool is_whole = transport.combines_whole(call.x) || bytes <= transport.slot_bytes();
  const auto item = static_cast<int64_t>(call.x.itemsize());
  const std::vector<int64_t> shares = chunk_sizes(call.x.numel(), call.route->size);
  for (int64_t peer = 0; peer < call.route->size; ++peer) {
    if (peer == call.route->rank) continue;
    const int64_t own_share = shares[static_cast<size_t>(call.route->rank)];
    const int64_t in_shares = (shares[static_cast<size_t>(peer)] + own_share) * item;
    sent[static_cast<size_t>(peer)] += is_whole ? bytes : in_shares;
  }
}

// What this rank sends to each rank.
std::vector<int64_t> sent_in(const std::vector<KeptRound>& rounds, const Group& group) {
  std::vector<int64_t> sent(static_cast<size_t>(group.size()));
  for (const KeptRound& round : rounds) {
    for (const KeptMove& move : round.together) {
      const Route& route = *move.call.route;
      if (route.pattern == Pattern::all_reduce) {
        add_all_reduce(move.call, group.transport(), sent);
        continue;
      }
      for (const Move& push : route.pushes) {
        if (push.peer == route.rank) continue;
        sent[static_cast<size_t>(push.peer)] +=
            push.mine.volume() * static_cast<int64_t>(move.call.x.itemsize());
      }
    }
  }
  return sent;
}

// Every rank tells what it sends to each rank, and the least that it has to receive.
RunBytes exchanged(const std::vector<int64_t>& sent, const Capture& capture, const Group& group) {
  std::vector<int64_t> mine = sent;
  mine.push_back(capture.least_bytes());
  const auto row_bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
  at::Tensor block = empty_tensor({row_bytes}, at::kByte);
  std::memcpy(block.mutable_data_ptr(), mine.data(), static_cast<size_t>(row_bytes));
  const Call call{.collective = capture.collective()};
  const Blocks blocks = numbered(group, [&] {
    return gathered(call, block, row_bytes, group, shm::mark_of(kPrepared, capture.number()));
  });
  RunBytes bytes{.ranks = group.size()};
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    std::memcpy(mine.data(), blocks.rows[rank].const_data_ptr(), static_cast<size_t>(row_bytes));
    bytes.sent.insert(bytes.sent.end(), mine.begin(), mine.end() - 1);
    bytes.least.push_back(mine.back());
  }
  return bytes;
}

RunBytes bytes_of(Capture& capture, const Group& group) {
  const auto meets = [](const KeptRound& round) { return !round.together.empty(); };
  const int64_t exchanges = std::count_if(capture.rounds().begin(), capture.rounds().end(), meets);
  RunBytes bytes{.ranks = group.size()};
  bytes.sent.resize(static_cast<size_t>(group.size() * group.size()));
  bytes.least.resize(static_cast<size_t>(group.size()));
  if (exchanges > 0) bytes = exchanged(sent_in(capture.rounds(), group), capture, group);
  bytes.exchanges = exchanges;
  return bytes;
}

}  // namespace

struct PreparedCall::State {
  explicit State(Capture capture) : kept(std::move(capture)) {
    if (!kept.group()) return;
    bytes = bytes_of(kept, group());
    is_compared = group().transport().compares_every_call(first_input());
    each_move([&](const KeptMove& move) {
      if (is_read(*move.call.route)) used.push_back(&move.call.x);
      if (is_written(*move.call.route)) written.push_back(&move.call.out);
    });
    used.insert(used.end(), written.begin(), written.end());
    make_ready();
  }

  const Group& group() const { return *kept.group(); }
  const char* name() const { return name_of(kept.collective()); }
  bool meets() const { return bytes.exchanges > 0; }
  at::Tensor first_input() const { return kept.inputs().empty() ? at::Tensor() : kept.inputs()[0].given; }

  // Prepares the moves for where the tensors lie now, unless they are ready from an earlier run.
  void make_ready() {
    const auto known =
        std::find_if(ready.begin(), ready.end(), [&](const Ready& one) { return is_for_now(one); });
    if (known != ready.end()) {
      std::rotate(ready.begin(), known, known + 1);
      return;
    }
    while (!ready.empty() && ready.size() >= most_ready) ready.pop_back();
    Ready made;
    for (const KeptRound& round : kept.rounds()) {
      std::vector<RouteCall> calls;
      for (const KeptMove& move : round.together) calls.push_back(move.call);
      made.moves.push_back(calls.empty() ? nullptr : repeated(group().transport(), std::move(calls)));
    }
    for (const at::Tensor* t : used) made.places.push_back(Lies::of(*t));
    ready.insert(ready.begin(), std::move(made));
    note_outputs();
  }

  template <class Visit>
  void each_move(const Visit& visit) const {
    for (const KeptRound& round : kept.rounds()) {
      for (const auto* list : {&round.alone, &round.together}) {
        for (const KeptMove& move : *list) visit(move);
      }
    }
  }

  bool is_for_now(const Ready& one) const {
    for (size_t i = 0; i < used.size(); ++i) {
      if (!one.places[i].is_of(*used[i])) return false;
    }
    return true;
  }

  // Whether nothing has changed since the last run, so that nothing is left to check.
  bool is_ready() const { return !is_closed && !ready.empty() && is_for_now(ready.front()); }

  // Throws on every rank that can hear of it if an input does not fit.
  void get_ready(const std::vector<at::Tensor>& inputs) {
    const std::string problem = problem_in([&] {
      if (is_closed) throw BadArgument("the prepared call was closed");
      if (!inputs.empty()) check_inputs(inputs);
      check_shapes();
      check_places();
    });
    if (!problem.empty()) refuse(problem);
    if (!inputs.empty()) take_inputs(inputs);
    make_ready();
  }

  // Collective.
  void fix() {
    make_ready();
    for (const auto& moves : ready.front().moves) {
      if (moves) moves->fix(subject());
    }
    for (const at::Tensor* t : used) fixed.push_back(t->alias());
    is_fixed = true;
  }

  // Throws BadArgument if the call was fixed and a tensor has moved since.
  void check_places() const {
    if (is_fixed && !is_for_now(ready.front()))
      throw BadArgument("a tensor of the prepared call has moved since fix()");
  }

  // Throws BadArgument if a tensor was given another shape since the call was prepared.
  void check_shapes() const {
    each_move([](const KeptMove& move) {
      const bool is_same = move.call.x.sizes() == at::IntArrayRef(move.call.route->input_shape) &&
                           move.call.out.sizes() == at::IntArrayRef(move.call.route->output_shape);
      if (!is_same) throw BadArgument("a tensor of the prepared call has been given another shape");
    });
  }

  void check_input(size_t i, const at::Tensor& x) const {
    const at::Tensor& before = kept.inputs()[i].given;
    const auto differ = [&](const auto& what, const auto& is, const auto& was) {
      throw BadArgument(
          c10::str("tensor ", i, " has ", what, " ", is, ", but the call was prepared for ", was));
    };
    if (!x.defined()) {
      if (kept.inputs()[i].is_here && before.numel() > 0)
        throw BadArgument(c10::str("tensor ", i, " is missing"));
      return;
    }
    check_dense(x, c10::str("tensor ", i).c_str());
    if (x.sizes() != before.sizes()) differ("shape", x.sizes(), before.sizes());
    if (x.scalar_type() != before.scalar_type())
      differ("dtype", dtype_name(x.scalar_type()), dtype_name(before.scalar_type()));
    if (x.device() != before.device()) differ("device", x.device(), before.device());
    if (at::GradMode::is_enabled() && x.requires_grad())
      throw BadArgument(c10::str("tensor ", i, ": ", kNoGradient));
    if (x.numel() > 0 && outputs.contains(memory_of(x)))
      throw BadArgument(c10::str("tensor ", i, " lies in the memory of a result of this call"));
  }

  void note_outputs() {
    outputs.clear();
    each_move([&](const KeptMove& move) { outputs.insert(memory_of(move.call.out)); });
    for (const KeptCopy& copy : kept.copies()) outputs.insert(memory_of(copy.out));
  }

  void check_inputs(const std::vector<at::Tensor>& xs) const {
    if (is_fixed) throw BadArgument("a call that was fixed takes no other tensors");
    if (xs.size() != kept.inputs().size())
      throw BadArgument(c10::str("there are ", xs.size(), " tensors, but the call was prepared for ",
                                 kept.inputs().size()));
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!xs[i].is_same(kept.inputs()[i].given)) check_input(i, xs[i]);
    }
  }

  void take_inputs(const std::vector<at::Tensor>& xs) {
    for (size_t i = 0; i < xs.size(); ++i) {
      if (xs[i].defined()) kept.inputs()[i] = {.given = xs[i], .read = materialized(xs[i])};
    }
    for (KeptRound& round : kept.rounds()) {
      for (auto* list : {&round.alone, &round.together}) {
        for (KeptMove& move : *list) {
          if (move.input) move.call.x = kept.inputs()[*move.input].read;
        }
      }
    }
  }

  Subject subject() const {
    return {
        .mark = shm::mark_of(shm::mark_of(kPrepared, kept.number()), runs), .name = name(), .words = [this] {
          return c10::str("run ", runs, " of the ", name(), " prepared as call ", kept.number());
        }};
  }

  // Throws this rank's problem; on the other ranks, too, as far as they can hear it.
  [[noreturn]] void refuse(const std::string& problem) {
    Transport& transport = group().transport();
    if (meets() && is_compared) {
      // The others find a mark that is not theirs, and all ranks say what they were about to do.
      const Subject own{.mark = shm::mark_of(kRefused, runs), .name = name(), .words = [&] {
                          return c10::str("run ", runs, " of the prepared ", name(), ", in which ", problem,
                                          ",");
                        }};
      numbered(group(), [&] { transport.all_gather_block(zero_tensor({8}, at::kByte), 8, own); });
    } else if (meets()) {
      compare(problem);
      give_up(transport, c10::str(name(), ": ", problem));
    }
    raise(name(), problem, group().rank());
  }

  // Under SHARDWAY_CHECK=1 the ranks compare the run, unless they do so anyway. Collective.
  void compare(const std::string& problem = {}) const {
    if (is_compared || !meets() || !checks_every_call(first_input(), group())) return;
    Call call{.collective = Collective::redistribute, .problem = problem};
    call.hash = CallHash{kept.number(), runs};
    call.words = [this] { return "the run: " + subject().words(); };
    agree(call, group());
  }

  void run() {
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (const KeptInput& input : kept.inputs()) {
      if (!input.read.is_same(input.given)) input.read.copy_(input.given);
    }
    const auto& moves = ready.front().moves;
    for (size_t i = 0; i < moves.size(); ++i) {
      for (const KeptMove& move : kept.rounds()[i].alone)
        Group::alone().transport().start(*move.call.route, move.call.x, move.call.out, {}, {})->finish();
      if (moves[i]) moves[i]->run(subject());
    }
    for (const KeptCopy& copy : kept.copies()) copy.out.copy_(kept.inputs()[copy.input].given);
    mark_outputs();
  }

  // So that autograd sees that a result has changed since it was used.
  void mark_outputs() const {
    for (const at::Tensor* out : written) {
      if (!out->is_inference()) out->unsafeGetTensorImpl()->bump_version();
    }
  }

  Capture kept;
  RunBytes bytes;
  bool is_compared = false;  // by the transport, in every run
  uint64_t runs = 0;
  bool is_closed = false;
  bool is_fixed = false;
  size_t most_ready = 1;
  std::vector<Ready> ready = {};                 // the one of the last run first
  std::vector<const at::Tensor*> used = {};      // tensors of the moves that this rank reads or writes
  std::vector<const at::Tensor*> written = {};   // those that it writes
  std::unordered_set<const void*> outputs = {};  // the memory of the results
  std::vector<at::Tensor> fixed = {};            // keep the memory of tensors that stay where they are
};

struct Preparation::Kept {
  Capture capture;
  bool is_current = true;
};

Preparation::Preparation() : kept_(std::make_unique<Kept>()) { kept_->capture.begin(); }

Preparation::~Preparation() { cancel(); }

void Preparation::cancel() {
  if (std::exchange(kept_->is_current, false)) kept_->capture.end();
}

PreparedCall Preparation::finish() {
  TORCH_CHECK_VALUE(kept_->is_current, "prepare: the preparation is over");
  cancel();
  return PreparedCall(std::make_shared<PreparedCall::State>(std::move(kept_->capture)));
}

void PreparedCall::run() { run({}); }

void PreparedCall::run(const std::vector<at::Tensor>& inputs) {
  State& state = *state_;
  TORCH_CHECK_VALUE(state.kept.group(), "prepare: no call of several ranks was prepared");
  ++state.runs;
  if (!inputs.empty() || !state.is_ready()) state.get_ready(inputs);
  numbered(state.group(), [&] {
    named(state.name(), [&] {
      state.compare();
      or_give_up(state.meets() ? state.group().transport() : Group::alone().transport(),
                 [&] { state.run(); });
    });
  });
}

void PreparedCall::refuse(const std::string& problem) {
  ++state_->runs;
  state_->refuse(problem);
}

void PreparedCall::keep_ready(int64_t sets) {
  TORCH_CHECK_VALUE(sets > 0, "prepare: sets=", sets, " is not positive");
  state_->most_ready = static_cast<size_t>(sets);
}

void PreparedCall::fix() {
  State& state = *state_;
  TORCH_CHECK_VALUE(state.kept.group(), "prepare: no call of several ranks was prepared");
  TORCH_CHECK_VALUE(!state.is_closed, "prepare: the prepared call was closed");
  ++state.runs;
  numbered(state.group(), [&] { named(state.name(), [&] { state.fix(); }); });
}

void PreparedCall::close() {
  State& state = *state_;
  state.fixed.clear();
  state.is_closed = true;
  state.ready.clear();
  state.used.clear();
  state.written.clear();
  state.kept.clear_moves();
}

bool PreparedCall::distributed() const { return state_->kept.group().has_value(); }

const RunBytes& PreparedCall::bytes() const { return state_->bytes; }

std::string PreparedCall::explain() const {
  return c10::str(distributed() ? state_->name() : "a call", ", prepared\n", shardway::explain(bytes()));
}

}  // namespace shardway
