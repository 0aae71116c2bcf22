#include "transport/hosts/two_level_transport.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>

#include "transport/c10d/mail_transfer.h"
#include "transport/common/boxes.h"
#include "transport/common/finished_transfer.h"
#include "transport/common/reduce.h"
#include "transport/hosts/host_blocks.h"
#include "transport/hosts/kept_plans.h"
#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

// A payload in a block crosses to every host, wanted there or not, and saves a round between hosts.
constexpr int64_t kSlotBytes = 8 << 10;

// The dtype in which addends are combined.
at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

at::Tensor run_of(const at::Tensor& memory, int64_t offset, const Box& box) {
  return memory.narrow(0, offset, box.volume()).view(at::IntArrayRef(box.extent));
}

// out = op over the addends, which have the wide dtype of out, divided by `divisor`.
void combine_into(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor) {
  if (out.scalar_type() == addends.front().scalar_type()) return reduce_into(out, addends, op, divisor);
  const at::Tensor sum = at::empty(out.sizes(), addends.front().options());
  reduce_into(sum, addends, op, divisor);
  out.copy_(sum);
}

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

// One route, from the first message to the last copy.
class TwoLevelRun {
 public:
  TwoLevelRun(const TwoLevels& plan, const Route& route, const at::Tensor& x, const at::Tensor& out)
      : plan_(plan), route_(route), x_(x), out_(out) {
    staged_ = plan.stages_input ? packed() : x.view({-1});
    landed_ = plan.lands_aside ? warm_empty({plan.landed_elements}, out.options()) : out.view({-1});
  }

  void run(Transport& inside, MailOffice& between, const Subject& subject) {
    const auto copies =
        start_by_mail(between.open(subject, Lengths::are_known).mail, plan_.copies, staged_, landed_, {});
    const auto options = out_.options().dtype(wide(out_.scalar_type()));
    sums_ = warm_empty({plan_.sums.output_shape[0]}, options);
    crossed_ = warm_empty({plan_.crossing.output_shape[0]}, options);
    if (plan_.has_sums)
      inside.start(plan_.sums, staged_.to(options.dtype().toScalarType()), sums_, {}, subject)->finish();
    const auto crossing =
        start_by_mail(between.open(subject, Lengths::are_known).mail, plan_.crossing, sums_, crossed_, {});
    if (plan_.has_home) inside.start(plan_.home, x_, out_, {}, subject)->finish();
    copies->finish();
    if (plan_.has_handover) inside.start(plan_.handover, landed_, landed_, {}, subject)->finish();
    crossing->finish();
    land();
  }

 private:
  at::Tensor packed() const {
    at::Tensor staged = warm_empty({plan_.staged_elements}, x_.options());
    for (const BoxRun& run : plan_.staged) run_of(staged, run.offset, run.box).copy_(view_of(x_, run.box));
    return staged;
  }

  void land() const {
    if (!plan_.host_sums.empty()) return combine();
    if (plan_.lands_aside) {
      for (const BoxRun& run : plan_.landed)
        view_of(out_, run.box).copy_(run_of(landed_, run.offset, run.box));
    }
    if (route_.divisor != 1) divide();
  }

  void combine() const {
    for (const HostSum& sum : plan_.host_sums) {
      std::vector<at::Tensor> addends;
      for (const HostOperand& operand : sum.operands) addends.push_back(addend(operand, sum.box));
      combine_into(view_of(out_, sum.box), addends, route_.op, route_.divisor);
    }
  }

  // The part `box` of the output, of what one host brings.
  at::Tensor addend(const HostOperand& operand, const Box& box) const {
    const at::Tensor& memory = operand.memory == HostOperand::Memory::landed      ? landed_
                               : operand.memory == HostOperand::Memory::home_sums ? sums_
                                                                                  : crossed_;
    Box inner = box;
    for (size_t d = 0; d < inner.offset.size(); ++d) inner.offset[d] -= operand.run.box.offset[d];
    return view_of(run_of(memory, operand.run.offset, operand.run.box), inner).to(sums_.scalar_type());
  }

  void divide() const {
    for (const Landing& landing : landings(route_)) {
      const at::Tensor part = view_of(out_, landing.box);
      combine_into(part, {part.to(sums_.scalar_type())}, route_.op, route_.divisor);
    }
  }

  const TwoLevels& plan_;
  const Route& route_;
  at::Tensor x_;
  at::Tensor out_;
  at::Tensor staged_;
  at::Tensor landed_;
  at::Tensor sums_;
  at::Tensor crossed_;
};

class TwoLevelTransport : public Transport {
 public:
  explicit TwoLevelTransport(TwoLevelOptions options)
      : rank_(options.between->rank()),
        inside_(std::move(options.inside)),
        between_(std::move(options.between)),
        queue_(std::move(options.queue)),
        timeout_(options.timeout),
        leave_host_(options.leave_host ? std::move(options.leave_host) : [] {}),
        plans_(std::move(options.hosts), rank_) {}

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return plans_.hosts().ranks(); }
  std::chrono::milliseconds timeout() override { return timeout_; }

  std::optional<std::string> refuses(c10::Device device) override {
    if (device.is_cpu()) return std::nullopt;
    return "the tensor is on " + device.str() + ", but the group moves CPU tensors only";
  }

  int64_t slot_bytes() override { return kSlotBytes; }
  bool has_thread() override { return true; }
  std::unique_ptr<Posted> post(std::function<void()> call) override { return queue_->post(std::move(call)); }

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
      in_turn([&] { run(route, x, out, subject); });
    } else if (reduces(landings(route), route)) {
      combine_known(route, known, out, plans_.hosts());
    } else {
      return start_by_mail(nullptr, route, x, out, known);
    }
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

  void give_up(const std::string& why) {
    between_->give_up(rank_, why);
    leave_host_();
  }

  void run(const Route& route, const at::Tensor& x, const at::Tensor& out, const Subject& subject) {
    TORCH_CHECK_VALUE(route.pattern == Pattern::all_to_all || knows_all_offsets(route),
                      "a route between hosts knows all offsets, unless it is an all-to-all (rank ", rank_,
                      ")");
    const ToldRoute told{.route = route,
                         .has_contiguous_input = x.is_contiguous(),
                         .has_contiguous_output = out.is_contiguous()};
    const auto plan = plans_.plan(told, static_cast<int64_t>(out.element_size()), *inside_, subject);
    TwoLevelRun(*plan, route, x, out).run(*inside_, *between_, subject);
  }

  int64_t rank_;
  std::shared_ptr<Transport> inside_;
  std::shared_ptr<MailOffice> between_;
  std::shared_ptr<CallQueue> queue_;
  std::chrono::milliseconds timeout_;
  std::function<void()> leave_host_;
  std::recursive_mutex mutex_;  // one thread at a time, even if callers use several
  KeptPlans plans_;
};

}  // namespace

std::shared_ptr<Transport> make_two_level_transport(TwoLevelOptions options) {
  return std::make_shared<TwoLevelTransport>(std::move(options));
}

}  // namespace shardway
