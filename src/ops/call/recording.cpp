#include "ops/call/recording.h"

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string>
#include <utility>
#include <vector>

namespace shardway {

Recording::Recording(const char* op, at::TensorList xs, const Sizes* sizes, Pass pass) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  if (C10_LIKELY(!callbacks)) return;
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& x : xs) inputs.emplace_back(x);
  if (sizes != nullptr) inputs.emplace_back(*sizes);
  const char* suffix = pass == Pass::backward ? "_backward" : "";
  event_.reset(new at::RecordFunction(std::move(*callbacks)));
  event_->before("shardway::" + std::string(op) + suffix,
                 c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

void Recording::End::operator()(at::RecordFunction* event) const { delete event; }

}  // namespace shardway
