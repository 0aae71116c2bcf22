#include "transport/hosts/two_level_transport.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <mutex>

#include "plan/hosts/call_pieces.h"
#include "transport/c10d/mail_transfer.h"
#include "transport/common/boxes.h"
#include "transport/common/giving_up.h"
#include "transport/common/knows_hosts.h"
#include "transport/common/reduce.h"
#include "transport/common/transport.h"
#include "transport/hosts/host_blocks.h"
#include "transport/hosts/kept_plans.h"
#include "transport/hosts/known_plans.h"
#include "transport/hosts/two_level_run.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

// A payload in a block crosses to every host, wanted there or not, and saves a round between hosts.
constexpr int64_t kSlotBytes = 8 << 10;

// Routes of a list that are not small and run together: each has up to 64 messages under way.
constexpr size_t kMostTogether = 16;

// From so many bytes on a broadcast to more than two hosts is spread. It has one more round of messages.
constexpr size_t kSpreadBytes = 256 << 10;

// Both ends of a move have to find out by themselves which boxes are the same and which meet.
bool knows_all_offsets(const Route& route) {
  const auto knows = [](const Move& move) {
    const Dims& offset = move.theirs.offset;
    return std::find(offset.begin(), offset.end(), kUnknownOffset) == offset.end();
  };
  return std::all_of(route.pulls.begin(), route.pulls.end(), knows) &&
         std::all_of(route.pushes.begin(), route.pushes.end(), knows);
}

// Combines inputs that are all here, in the order of two levels.
void combine_known(const Route& route, const KnownInputs& known, const at::Tensor& out,
                   const HostMap& hosts) {
  const auto dtype = wide(out.scalar_type());
  for (const Landing& landing : landings(route)) {
    std::vector<std::vector<at::Tensor>> by_host(static_cast<size_t>(hosts.hosts()));
    for (const Addend& addend : landing.addends) {
      const Move& pull = route.pulls[static_cast<size_t>(addend.pull)];
      const at::Tensor box = view_of(known[static_cast<size_t>(pull.peer)], pull.theirs);
      by_host[static_cast<size_t>(hosts.host_of(pull.peer))].push_back(view_of(box, addend.from).to(dtype));
    }
    std::vector<at::Tensor> sums;
    for (const auto& addends : by_host) {
      if (addends.empty()) continue;
      sums.push_back(at::empty(addends.front().sizes(), addends.front().options()));
      reduce_into(sums.back(), addends, route.op, 1);
    }
    combine_into(view_of(out, landing.box), sums, route.op, route.divisor);
  }
}

// The small routes of a list together, and the others a few at a time. The same on every rank.
std::vector<std::vector<RouteCall>> batches_of(const std::vector<RouteCall>& calls) {
  std::vector<std::vector<RouteCall>> batches(1);
  for (const RouteCall& call : calls) {
    if (call.is_small) batches[0].push_back(call);
  }
  const size_t small = batches[0].size();
  for (const RouteCall& call : calls) {
    if (call.is_small) continue;
    const size_t others = batches.back().size() - (batches.size() == 1 ? small : 0);
    if (others == kMostTogether) batches.emplace_back();
    batches.back().push_back(call);
  }
  return batches;
}

// A call that was over when it was posted.
class PostedInCall : public Posted {
 public:
  explicit PostedInCall(const std::function<void()>& call) {
    try {
      call();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void wait() override {
    if (failure_) std::rethrow_exception(failure_);
  }
  bool is_over() override { return true; }

 private:
  std::exception_ptr failure_;
};

class TwoLevelTransport : public Transport, public KnowsHosts, public GivesUp {
 public:
  explicit TwoLevelTransport(TwoLevelOptions options)
      : rank_(options.between->rank()),
        inside_(std::move(options.inside)),
        between_(std::move(options.between)),
        queue_(std::move(options.queue)),
        timeout_(options.timeout),
        leave_host_(options.leave_host ? std::move(options.leave_host) : [] {}),
        may_use_thread_(options.may_use_thread),
        known_(options.hosts, rank_),
        plans_(std::move(options.hosts), rank_) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return plans_.hosts().ranks(); }
  std::chrono::milliseconds timeout() override { return timeout_; }

  std::optional<std::string> refuses(c10::Device device) override {
    if (device.is_cpu()) return std::nullopt;
    return "the tensor is on " + device.str() + ", but the group moves CPU tensors only";
  }

  const HostMap* hosts_for(const at::Tensor& x) override {
    return !x.defined() || x.is_cpu() ? &plans_.hosts() : nullptr;
  }

  int64_t slot_bytes() override { return kSlotBytes; }
  bool has_own(const Route& route, const at::Tensor& x) override {
    return route.pattern == Pattern::all_reduce && static_cast<int64_t>(x.nbytes()) > kSlotBytes;
  }
  bool has_thread() override { return true; }
  std::unique_ptr<Posted> post(std::function<void()> call) override {
    if (!may_use_thread_) return std::make_unique<PostedInCall>(call);
    return queue_->post(std::move(call));
  }

  void give_up(const std::string& why) override {
    between_->give_up(rank_, why);
    leave_host_();
  }

  Blocks all_gather_block(const at::Tensor& mine, int64_t row_bytes, const Subject& subject) override {
    Blocks blocks;
    in_turn([&] {
      const MailOffice::Opened opened = between_->open(subject, Lengths::vary);
      blocks = all_gather_block_by_hosts(mine, row_bytes, plans_.hosts(), *inside_, opened, subject);
    });
    return blocks;
  }

  // Makes the moves before it returns, as a transport in shared memory does. Inputs that only some ranks know
  // are moved with the others.
  std::unique_ptr<Transfer> start(const Route& route, const at::Tensor& x, const at::Tensor& out,
                                  const KnownInputs& known, const Subject& subject) override {
    if (!is_all_known(known, size())) {
      in_turn([&] {
        if (is_spread(route, out) || has_own(route, x)) return run_known(route, x, out, subject);
        run({{.route = &route, .x = x, .out = out}}, subject);
      });
    } else if (reduces(landings(route), route)) {
      combine_known(route, known, out, plans_.hosts());
    } else {
      return start_by_mail(nullptr, route, x, out, known);
    }
    return std::make_unique<FinishedTransfer>();
  }

  std::unique_ptr<Transfer> start_all(const std::vector<RouteCall>& calls, const Subject& subject) override {
    in_turn([&] {
      std::vector<RouteCall> others;
      for (const RouteCall& call : calls) {
        if (has_own(*call.route, call.x)) {
          run_known(*call.route, call.x, call.out, subject);
        } else {
          others.push_back(call);
        }
      }
      if (others.empty()) return;
      for (const std::vector<RouteCall>& batch : batches_of(others)) run(batch, subject);
    });
    return std::make_unique<FinishedTransfer>();
  }

 private:
  // A rank that fails in one level tells the ranks that wait for it in the other. Errors of the mail, and of
  // a peer that was lost in the host's memory, are told between the hosts before they come here.
  void in_turn(const std::function<void()>& call) {
    const auto guarded = [&] {
      const std::lock_guard lock(mutex_);
      try {
        call();
      } catch (const c10::DistBackendError&) {
        leave_host_();
        throw;
      } catch (const c10::Error& error) {
        give_up(error.what_without_backtrace());
        throw;
      } catch (...) {
        give_up("its call was interrupted or failed");
        throw;
      }
    };
    queue_->in_turn(guarded, [&] { give_up("it was interrupted"); });
  }

  bool is_spread(const Route& route, const at::Tensor& out) const {
    return route.pattern == Pattern::broadcast && plans_.hosts().hosts() > 2 && out.nbytes() >= kSpreadBytes;
  }

  // An all-reduce, or a broadcast that is spread. While a piece of it crosses, the ranks of a host work on
  // the next.
  void run_known(const Route& route, const at::Tensor& x, const at::Tensor& out, const Subject& subject) {
    const at::Tensor landed = out.is_contiguous() ? out : warm_empty(out.sizes(), out.options());
    const std::vector<KnownPiece> pieces = pieces_of(route, x.reshape({-1}), landed.view({-1}));
    std::deque<RunsUnderWay> first;
    for (const KnownPiece& piece : pieces) {
      first.emplace_back(runs_of(piece.planned->first, piece.x, piece.first_part), ways(), subject);
      first.back().start();
    }
    // Expected early, and in the order in which they are sent. What comes for the output was made from the
    // inputs of all ranks, so `out` may be `x`.
    std::deque<RunsUnderWay> second;
    for (const KnownPiece& piece : pieces)
      second.emplace_back(runs_of(piece.planned->second, piece.first_part, piece.out), ways(), subject);
    for (size_t i = 0; i < pieces.size(); ++i) {
      first[i].finish();
      second[i].start();
    }
    for (RunsUnderWay& runs : second) runs.finish();
    if (!landed.is_same(out)) out.copy_(landed);
  }

  struct KnownPiece {
    std::shared_ptr<const PlannedCall> planned;
    at::Tensor x;
    at::Tensor first_part;
    at::Tensor out;
  };

  std::vector<KnownPiece> pieces_of(const Route& route, const at::Tensor& x, const at::Tensor& out) {
    KnownCall call{.pattern = route.pattern,
                   .run = {.element_bytes = static_cast<int64_t>(out.element_size()),
                           .sum_bytes = static_cast<int64_t>(c10::elementSize(wide(out.scalar_type())))},
                   .op = route.op,
                   .divisor = route.divisor,
                   .root = route.pulls.front().peer};
    std::vector<KnownPiece> pieces;
    int64_t begin = 0;
    for (const int64_t elements : call_pieces(out.numel(), call.run.element_bytes, plans_.hosts())) {
      call.run.elements = elements;
      KnownPiece piece{.planned = known_.planned(call),
                       .x = x.narrow(0, begin, elements),
                       .out = out.narrow(0, begin, elements)};
      const Box& part = piece.planned->first_part;
      piece.first_part = piece.out.narrow(0, part.offset[0], part.extent[0]);
      pieces.push_back(std::move(piece));
      begin += elements;
    }
    return pieces;
  }

  static std::vector<TwoLevelRun> runs_of(const PlannedRoute& planned, const at::Tensor& x,
                                          const at::Tensor& out) {
    return {TwoLevelRun(planned.plan, {.route = &planned.route, .x = x, .out = out})};
  }

  TwoLevelWays ways() { return {.whole = *this, .inside = *inside_, .between = *between_}; }

  void run(const std::vector<RouteCall>& calls, const Subject& subject) {
    std::vector<ToldPart> parts;
    for (const RouteCall& call : calls) {
      TORCH_CHECK_VALUE(call.route->pattern == Pattern::all_to_all || knows_all_offsets(*call.route),
                        "a route between hosts knows all offsets, unless it is an all-to-all (rank ", rank_,
                        ")");
      parts.push_back({.told = {.route = *call.route,
                                .has_contiguous_input = call.x.is_contiguous(),
                                .has_contiguous_output = call.out.is_contiguous()},
                       .element_bytes = static_cast<int64_t>(call.out.element_size())});
    }
    const auto plans = plans_.plans(parts, *inside_, subject);
    std::vector<TwoLevelRun> runs;
    for (size_t i = 0; i < calls.size(); ++i) runs.emplace_back((*plans)[i], calls[i]);
    RunsUnderWay under_way(std::move(runs), ways(), subject);
    under_way.start();
    under_way.finish();
  }

  int64_t rank_;
  std::shared_ptr<Transport> inside_;
  std::shared_ptr<MailOffice> between_;
  std::shared_ptr<CallQueue> queue_;
  std::chrono::milliseconds timeout_;
  std::function<void()> leave_host_;
  bool may_use_thread_;
  std::recursive_mutex mutex_;  // one thread at a time, even if callers use several
  KnownPlans known_;
  KeptPlans plans_;
};

}  // namespace

std::shared_ptr<Transport> make_two_level_transport(TwoLevelOptions options) {
  return std::make_shared<TwoLevelTransport>(std::move(options));
}

}  // namespace shardway
