#include "ops/collectives/again.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include "ops/call/capture.h"

namespace shardway {
namespace {

// Whether the bytes in the tensor's memory are its values.
bool is_plain(const at::Tensor& t) {
  return t.is_cpu() && !t.is_conj() && !t.is_neg() && !t._is_zerotensor();
}

}  // namespace

KeptCalls* keeper_of(const KeptCallKey& key, const Group& group) {
  if (!group.distributed() || !key.x.defined() || !is_plain(key.x)) return nullptr;
  if (key.x.requires_grad() && at::GradMode::is_enabled()) return nullptr;
  if (key.out != nullptr && (!key.out->defined() || !is_plain(*key.out) || key.out->requires_grad()))
    return nullptr;
  if (at::hasCallbacks() || Capture::current() != nullptr) return nullptr;
  return group.transport().kept_calls();
}

}  // namespace shardway
