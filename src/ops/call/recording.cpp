#include "ops/call/recording.h"

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace shardway {

void Recording::begin(const char* op, at::TensorList xs, const Sizes* sizes, Pass pass) {
  std::vector<c10::IValue> inputs;
  for (const at::Tensor& x : xs) inputs.emplace_back(x);
  if (sizes != nullptr) inputs.emplace_back(*sizes);
  const char* suffix = pass == Pass::backward ? "_backward" : "";
  guard_.before("shardway::" + std::string(op) + suffix,
                c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
}

}  // namespace shardway
