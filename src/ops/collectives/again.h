// Plain calls that are made again and again with the same arguments but for the contents of their tensors.
#pragma once

#include <optional>

#include "ops/call/launch.h"
#include "ops/call/ragged.h"
#include "transport/kept/kept_calls.h"

namespace shardway {

// Where calls of this key are kept; null if they are not. That is so if the call has a gradient, is on a
// device, or moves in several meetings, and while a profiler runs or a call is prepared.
KeptCalls* keeper_of(const KeptCallKey& key, const Group& group);

// Makes the call if it can be kept: as it was made before, or anew, to keep it. Collective. `read` and
// `decide` are as in the other ways to make the call. Returns nothing if nothing was done.
template <class Read, class Decide>
std::optional<Ragged> made_again(const KeptCallKey& key, const Group& group, Read&& read, Decide&& decide) {
  KeptCalls* const calls = keeper_of(key, group);
  if (calls == nullptr) return std::nullopt;
  const auto decide_anew = [&decide](const Call& call, Agreement agreement) {
    Settled settled = settled_by(std::move(agreement));
    return decide(call, settled);
  };
  const Anew anew{.read = std::ref(read), .decide = decide_anew};
  if (auto kept = calls->take(key)) return launch_again(std::move(kept), key, *calls, anew, group);
  return launch_and_keep(key, *calls, anew, group);
}

}  // namespace shardway
