// A collective as the readers of profiles know torch's own: an event "record_param_comms" that tells its
// name, elements, dtype, splits and group.
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

// As torch.distributed named the group; empty where it did not.
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

// A route on tensors of this transport. Splits are in elements by rank, and left out where the ranks do not
// divide the tensor.
CommsFacts facts_of(const char* name, const Route& route, const at::Tensor& x, const at::Tensor& out,
                    Transport& transport);

// Lasts as long as the call, on one thread. Where no profiler runs it looks at one pointer and `tell` is not
// called.
class ParamComms {
 public:
  template <class Tell>
  explicit ParamComms(Tell&& tell) {
    if (C10_UNLIKELY(event_.isActive())) begin(tell());
  }

 private:
  void begin(const CommsFacts& facts);

  // Read when the event begins and when it ends: they outlive it.
  std::vector<c10::IValue> told_;
  std::optional<c10::DebugInfoGuard> info_;
  at::RecordFunction event_{at::RecordScope::FUNCTION};
};

}  // namespace shardway
