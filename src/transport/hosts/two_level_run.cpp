#include "transport/hosts/two_level_run.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "transport/c10d/mail_transfer.h"
#include "transport/common/boxes.h"
#include "transport/common/reduce.h"
#include "transport/memory/warm_memory.h"
#include "transport/shm/list_call.h"

namespace shardway {
namespace {

at::Tensor run_of(const at::Tensor& memory, int64_t offset, const Box& box) {
  return memory.narrow(0, offset, box.volume()).view(at::IntArrayRef(box.extent));
}

using RouteOf = std::optional<RouteCall> (TwoLevelRun::*)() const;

std::vector<RouteCall> calls_of(const std::vector<TwoLevelRun>& runs, RouteOf route) {
  std::vector<RouteCall> calls;
  for (const TwoLevelRun& run : runs) {
    if (auto call = (run.*route)()) calls.push_back(*std::move(call));
  }
  return calls;
}

// A list in shared memory must know where its boxes lie; other routes run on their own.
void run_inside(const std::vector<RouteCall>& calls, Transport& inside, const Subject& subject) {
  std::vector<RouteCall> together;
  for (const RouteCall& call : calls) {
    if (calls.size() > 1 && !call.offsets_unknown) {
      together.push_back(call);
    } else {
      inside.start(*call.route, call.x, call.out, {}, subject)->finish();
    }
  }
  if (!together.empty()) inside.start_all(together, subject)->finish();
}

}  // namespace

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

void combine_into(const at::Tensor& out, const std::vector<at::Tensor>& addends, Op op, int64_t divisor) {
  if (out.scalar_type() == addends.front().scalar_type()) return reduce_into(out, addends, op, divisor);
  const at::Tensor sum = at::empty(out.sizes(), addends.front().options());
  reduce_into(sum, addends, op, divisor);
  out.copy_(sum);
}

TwoLevelRun::TwoLevelRun(const TwoLevels& plan, const RouteCall& call) : plan_(plan), call_(call) {
  staged_ = plan.stages_input ? packed() : call.x.view({-1});
  landed_ = plan.lands_aside ? warm_empty({plan.landed_elements}, call.out.options()) : call.out.view({-1});
  const auto options = call.out.options().dtype(wide(call.out.scalar_type()));
  sums_ = warm_empty({plan.sums.output_shape[0]}, options);
  crossed_ = warm_empty({plan.crossing.output_shape[0]}, options);
}

RouteCall TwoLevelRun::on(const Route& route, const at::Tensor& x, const at::Tensor& out) const {
  return {.route = &route, .x = x, .out = out, .is_small = call_.is_small};
}

std::optional<RouteCall> TwoLevelRun::copies() const { return on(plan_.copies, staged_, landed_); }

std::optional<RouteCall> TwoLevelRun::sums() const {
  if (!plan_.has_sums) return std::nullopt;
  return on(plan_.sums, staged_.to(sums_.scalar_type()), sums_);
}

std::optional<RouteCall> TwoLevelRun::crossing() const { return on(plan_.crossing, sums_, crossed_); }

std::optional<RouteCall> TwoLevelRun::home() const {
  if (!plan_.has_home) return std::nullopt;
  RouteCall home = on(plan_.home, call_.x, call_.out);
  home.offsets_unknown = call_.route->pattern == Pattern::all_to_all;
  return home;
}

std::optional<RouteCall> TwoLevelRun::handover() const {
  if (!plan_.has_handover) return std::nullopt;
  return on(plan_.handover, landed_, landed_);
}

at::Tensor TwoLevelRun::packed() const {
  at::Tensor staged = warm_empty({plan_.staged_elements}, call_.x.options());
  for (const BoxRun& run : plan_.staged) run_of(staged, run.offset, run.box).copy_(view_of(call_.x, run.box));
  return staged;
}

void TwoLevelRun::land() const {
  if (!plan_.host_sums.empty()) return combine();
  if (plan_.lands_aside) {
    for (const BoxRun& run : plan_.landed)
      view_of(call_.out, run.box).copy_(run_of(landed_, run.offset, run.box));
  }
  if (call_.route->divisor != 1) divide();
}

void TwoLevelRun::combine() const {
  for (const HostSum& sum : plan_.host_sums) {
    std::vector<at::Tensor> addends;
    for (const HostOperand& operand : sum.operands) addends.push_back(addend(operand, sum.box));
    combine_into(view_of(call_.out, sum.box), addends, call_.route->op, call_.route->divisor);
  }
}

// The part `box` of the output, of what one host brings.
at::Tensor TwoLevelRun::addend(const HostOperand& operand, const Box& box) const {
  const at::Tensor& memory = operand.memory == HostOperand::Memory::landed      ? landed_
                             : operand.memory == HostOperand::Memory::home_sums ? sums_
                                                                                : crossed_;
  Box inner = box;
  for (size_t d = 0; d < inner.offset.size(); ++d) inner.offset[d] -= operand.run.box.offset[d];
  return view_of(run_of(memory, operand.run.offset, operand.run.box), inner).to(sums_.scalar_type());
}

void TwoLevelRun::divide() const {
  for (const Landing& landing : landings(*call_.route)) {
    const at::Tensor part = view_of(call_.out, landing.box);
    combine_into(part, {part.to(sums_.scalar_type())}, call_.route->op, call_.route->divisor);
  }
}

// Moves between hosts, with mail of its own for each message of a pair of ranks. Boxes of small routes are
// packed when it is made, so their inputs are there by then.
class RunsUnderWay::Crossings {
 public:
  Crossings(const std::vector<RouteCall>& calls, const TwoLevelWays& ways, const Subject& subject)
      : list_(calls, ways.whole) {
    for (const RouteCall& call : list_.calls()) {
      transfers_.push_back(
          expect_by_mail(ways.between.open(subject, Lengths::are_known).mail, *call.route, call.x, call.out));
    }
  }

  void send() {
    for (const auto& transfer : transfers_) transfer->send();
  }

  void finish() {
    for (const auto& transfer : transfers_) transfer->finish();
    list_.land();
  }

 private:
  ListCall list_;
  std::vector<std::unique_ptr<ExpectingTransfer>> transfers_;
};

RunsUnderWay::RunsUnderWay(std::vector<TwoLevelRun> runs, const TwoLevelWays& ways, const Subject& subject)
    : runs_(std::move(runs)), ways_(ways), subject_(subject) {
  const auto is_small = [](const TwoLevelRun& run) { return run.is_small(); };
  if (std::any_of(runs_.begin(), runs_.end(), is_small)) return;
  copies_ = crossings(&TwoLevelRun::copies);
  sums_ = crossings(&TwoLevelRun::crossing);
}

std::unique_ptr<RunsUnderWay::Crossings> RunsUnderWay::crossings(RouteOf route) const {
  return std::make_unique<Crossings>(calls_of(runs_, route), ways_, subject_);
}

void RunsUnderWay::start() {
  if (!copies_) copies_ = crossings(&TwoLevelRun::copies);
  copies_->send();
  run_inside(calls_of(runs_, &TwoLevelRun::sums), ways_.inside, subject_);
  if (!sums_) sums_ = crossings(&TwoLevelRun::crossing);
  sums_->send();
}

RunsUnderWay::~RunsUnderWay() = default;

void RunsUnderWay::finish() {
  run_inside(calls_of(runs_, &TwoLevelRun::home), ways_.inside, subject_);
  copies_->finish();
  run_inside(calls_of(runs_, &TwoLevelRun::handover), ways_.inside, subject_);
  sums_->finish();
  for (const TwoLevelRun& run : runs_) run.land();
}

}  // namespace shardway
