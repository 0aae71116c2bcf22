// Records a collective in profiles as torch records its own: as an event "record_param_comms" with its name,
// elements, dtype, splits and group.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shardway/route.h"
#include "transport/common/transport.h"

namespace shardway {

struct GroupLabel {
  std::string name;
  std::string description;
};

// The names that torch.distributed gave the group; empty if it gave none.
GroupLabel label_of(const Transport& transport);

struct CommsFacts {
  std::string name;
  GroupLabel group = {};
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> global_ranks = {};  // empty: 0, 1, …
  std::vector<at::Tensor> inputs = {};
  std::vector<at::Tensor> outputs = {};
  at::ScalarType dtype = at::kByte;  // where there is no tensor
  std::vector<int64_t> input_splits = {};
  std::vector<int64_t> output_splits = {};
  bool is_async = false;
  int64_t sequence_number = 0;
  bool is_message = false;
};

// The facts of a route on tensors of this transport. Splits are in elements by rank, and left out if the
// ranks do not divide the tensor.
CommsFacts facts_of(const char* name, const Route& route, const at::Tensor& x, const at::Tensor& out,
                    Transport& transport);

// Lives as long as the call, on one thread. Without a profiler it reads one pointer and does not call `tell`.
class ParamComms {
 public:
  template <class Tell>
  explicit ParamComms(Tell&& tell) {
    if (C10_UNLIKELY(event_.isActive())) begin(tell());
  }

 private:
  void begin(const CommsFacts& facts);

  // The event reads these when it begins and when it ends, so they are declared before it and outlive it.
  std::vector<c10::IValue> told_;
  std::optional<c10::DebugInfoGuard> info_;
  at::RecordFunction event_{at::RecordScope::FUNCTION};
};

}  // namespace shardway
