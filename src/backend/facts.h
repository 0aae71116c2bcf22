// A call of the backend as profiles record it.
#pragma once

#include "backend/backend.h"
#include "transport/common/param_comms.h"

namespace shardway::backend {

inline CommsFacts facts_of(Backend& backend, const char* name, const Tensors& inputs,
                           const Tensors& outputs) {
  const auto& ranks = backend.getBackendOptions()->global_ranks_in_group;
  return {.name = name,
          .group = {.name = backend.getGroupUid(), .description = backend.getGroupDesc()},
          .rank = backend.getRank(),
          .size = backend.getSize(),
          .global_ranks = {ranks.begin(), ranks.end()},
          .inputs = inputs,
          .outputs = outputs,
          .sequence_number = static_cast<int64_t>(backend.getSequenceNumberForGroup())};
}

// A message to or from one rank.
inline CommsFacts facts_of_message(Backend& backend, const char* name, const Tensors& tensors) {
  CommsFacts facts = facts_of(backend, name, tensors, tensors);
  facts.is_message = true;
  return facts;
}

}  // namespace shardway::backend
