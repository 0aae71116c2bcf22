#include "ops/call/capture.h"

#include <algorithm>
#include <utility>

namespace shardway {
namespace {

thread_local Capture* current_capture = nullptr;

}  // namespace

Capture* Capture::current() { return current_capture; }

void Capture::begin() { before_ = std::exchange(current_capture, this); }

void Capture::end() { current_capture = before_; }

void Capture::set_call(Collective collective, uint64_t number, const Group& group) {
  TORCH_CHECK_VALUE(!group_, "prepare: one call is prepared at a time, but ", name_of(collective),
                    " follows ", name_of(collective_));
  collective_ = collective;
  number_ = number;
  group_ = group;
}

void Capture::clear() {
  group_.reset();
  least_bytes_ = 0;
  clear_moves();
}

void Capture::clear_moves() {
  rounds_.clear();
  copies_.clear();
  inputs_.clear();
  unclaimed_.clear();
  routes_.clear();
}

size_t Capture::add_input(const KeptInput& input) {
  inputs_.push_back(input);
  unclaimed_.emplace(input.read.unsafeGetTensorImpl(), inputs_.size() - 1);
  return inputs_.size() - 1;
}

std::optional<size_t> Capture::claim_input(const at::Tensor& x) {
  const auto first = unclaimed_.lower_bound({x.unsafeGetTensorImpl(), 0});
  if (first == unclaimed_.end() || first->first != x.unsafeGetTensorImpl()) return std::nullopt;
  const size_t input = first->second;
  unclaimed_.erase(first);
  return input;
}

KeptRound& Capture::round() {
  if (rounds_.empty()) rounds_.emplace_back();
  return rounds_.back();
}

void Capture::next_round() {
  if (!round().together.empty()) rounds_.emplace_back();
}

void Capture::add_alone(const Route& route, const at::Tensor& x, const at::Tensor& out) {
  round().alone.push_back(
      {.call = {&routes_.emplace_back(KeptRoute{route}).route, x, out}, .input = claim_input(x)});
}

void Capture::add_together(const RouteCall& call) {
  KeptMove& kept = round().together.emplace_back(KeptMove{.call = call, .input = claim_input(call.x)});
  kept.call.route = &routes_.emplace_back(KeptRoute{*call.route}).route;
  kept.call.event = nullptr;
}

void Capture::add_least(const Route& direct, int64_t element_bytes) {
  for (const Landing& landing : landings(direct)) {
    const auto comes_from_another = [&](const Addend& addend) {
      return direct.pulls[static_cast<size_t>(addend.pull)].peer != direct.rank;
    };
    const bool must_come = std::any_of(landing.addends.begin(), landing.addends.end(), comes_from_another);
    if (must_come) least_bytes_ += landing.box.volume() * element_bytes;
  }
}

}  // namespace shardway
