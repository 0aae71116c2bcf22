#include "transport/common/param_comms.h"

#include <ATen/ATen.h>

#include <memory>
#include <numeric>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

namespace shardway {
namespace {

int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& t : tensors) count += t.numel();
  return count;
}

at::ScalarType dtype_of(const CommsFacts& facts) {
  for (const auto* tensors : {&facts.inputs, &facts.outputs}) {
    if (!tensors->empty()) return tensors->front().scalar_type();
  }
  return facts.dtype;
}

// Elements by peer; empty unless the moves divide the elements among the peers.
std::vector<int64_t> splits_of(const Moves& moves, int64_t ranks, int64_t elements) {
  std::vector<int64_t> splits(static_cast<size_t>(ranks));
  for (const Move& move : moves) splits[static_cast<size_t>(move.peer)] += move.mine.volume();
  const bool is_divided = std::accumulate(splits.begin(), splits.end(), int64_t{0}) == elements;
  return is_divided ? splits : std::vector<int64_t>{};
}

// Torch describes the ranks of a group by the first rank and the step to the next.
struct Progression {
  int start = 0;
  int stride = 1;
};

Progression progression_of(const std::vector<int64_t>& ranks) {
  if (ranks.empty()) return {};
  const int start = static_cast<int>(ranks.front());
  return {.start = start, .stride = ranks.size() > 1 ? static_cast<int>(ranks[1]) - start : 1};
}

// Older releases of torch know neither whether a call is asynchronous nor its number.
template <class Info, class... Facts>
std::shared_ptr<Info> info_of(bool is_async, Facts&&... facts) {
  if constexpr (std::is_constructible_v<Info, Facts..., bool>) {
    return std::make_shared<Info>(std::forward<Facts>(facts)..., is_async);
  } else {
    return std::make_shared<Info>(std::forward<Facts>(facts)...);
  }
}
template <class Info, class Sequence>
void number(const std::shared_ptr<Info>& info, const Sequence& sequence) {
  if constexpr (requires { maybeSetSequenceInfo(info, sequence); }) maybeSetSequenceInfo(info, sequence);
}

}  // namespace

CommsFacts facts_of(const char* name, const Route& route, const at::Tensor& x, const at::Tensor& out,
                    Transport& transport) {
  return {.name = name,
          .group = label_of(transport),
          .rank = route.rank,
          .size = route.size,
          .global_ranks = transport.global_ranks(),
          .inputs = {x},
          .outputs = {out},
          .input_splits = splits_of(route.pushes, route.size, x.numel()),
          .output_splits = splits_of(route.pulls, route.size, out.numel())};
}

void ParamComms::begin(const CommsFacts& facts) {
  const auto label = std::make_tuple(facts.group.name, facts.group.description);
  const auto sequence = std::make_tuple(facts.sequence_number, facts.is_message);
  const auto [start, stride] = progression_of(facts.global_ranks);
  const auto rank = static_cast<int>(facts.rank);
  const auto size = static_cast<int>(facts.size);
  const auto info = info_of<torch::ParamCommsDebugInfo>(facts.is_async, label, rank, std::string(facts.name),
                                                        elements_of(facts.inputs), elements_of(facts.outputs),
                                                        dtype_of(facts), facts.input_splits,
                                                        facts.output_splits, start, stride, size);
  number(info, sequence);
  info_.emplace(c10::DebugInfoKind::PARAM_COMMS_INFO, info);
  if (!event_.needsInputs()) {
    event_.before(at::kParamCommsCallName);
    return;
  }
  told_ = {facts.inputs,        sequence, label,  rank, facts.name,    facts.input_splits,
           facts.output_splits, start,    stride, size, facts.is_async};
  event_.before(at::kParamCommsCallName, c10::ArrayRef<const c10::IValue>(told_.data(), told_.size()));
  if (event_.needsOutputs()) event_.setOutputs(std::vector<c10::IValue>{facts.outputs});
}

}  // namespace shardway
