// Calls that the ranks of a group have agreed on, kept for the next calls like them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "shardway/route.h"
#include "terms/collective.h"
#include "transport/common/transport.h"

namespace shardway {

// What the checks of a call, its block and its route follow from, in a given group. Two calls with equal keys
// differ only in the contents of their tensors and in where these lie. Refers to the caller's arguments.
struct KeptCallKey {
  Collective collective = Collective::all_gather_v;
  Op op = Op::sum;
  uint8_t grad = 0;
  int64_t dim = 0;  // as given
  const at::Tensor& x;
  const at::Tensor* out = nullptr;  // the caller's, if any
  const std::vector<int64_t>* sizes = nullptr;
  const std::vector<int64_t>* recv_sizes = nullptr;

  uint64_t hash() const;
};

// What a call depends on in a tensor, besides its memory.
struct TensorKind {
  static TensorKind of(const at::Tensor& t);
  bool is_of(const at::Tensor& t) const;

  uint64_t dispatch_keys = 0;  // differ for views that are computed lazily, subclasses, and inference tensors
  at::ScalarType dtype = at::ScalarType::Undefined;
  c10::DimVector sizes = {};
  c10::DimVector strides = {};
  uintptr_t spanned_bytes = 0;
};

// A call of tensors on the CPU, in one meeting, that has no gradient.
class KeptCall {
 public:
  explicit KeptCall(const KeptCallKey& key);

  // Whether a call of this key is this one, and its tensors lie apart.
  bool is_of(const KeptCallKey& key) const;
  uint64_t hash() const { return hash_; }
  Collective collective() const { return collective_; }

  // Keeps what all ranks said.
  void hear(const Blocks& blocks);

  // Whether all ranks say the same again.
  bool is_heard_again(const Blocks& blocks) const;

  Opening opening = {};             // without the tensor
  Route route = {};                 // that follows from what all ranks said
  std::vector<int64_t> sizes = {};  // of every rank's part of the result

 private:
  uint64_t hash_;
  Collective collective_;
  Op op_;
  uint8_t grad_;
  int64_t dim_;
  TensorKind x_;
  bool has_out_;
  TensorKind out_ = {};
  bool has_sizes_;
  std::vector<int64_t> given_sizes_ = {};
  bool has_recv_sizes_;
  std::vector<int64_t> recv_sizes_ = {};
  std::vector<uint8_t> said_ = {};  // by all ranks, one block after the other
  std::vector<int64_t> said_bytes_ = {};
};

// The kept calls of a group. Their number is bounded: a new one may take the place of an old one. Any thread
// may call, and none waits.
class KeptCalls {
 public:
  // `transport` moves the calls, and owns this object.
  explicit KeptCalls(Transport& transport);
  ~KeptCalls();
  KeptCalls(const KeptCalls&) = delete;
  KeptCalls& operator=(const KeptCalls&) = delete;

  Transport& transport() const { return transport_; }

  // Returns the kept call of this key, or null. It is the caller's alone until it is put back.
  std::unique_ptr<KeptCall> take(const KeptCallKey& key);
  void put(std::unique_ptr<KeptCall> call);

 private:
  static constexpr size_t kWays = 2;  // places for calls whose hashes meet

  std::atomic<KeptCall*>* places_of(uint64_t hash) { return places_.data() + hash % sets_ * kWays; }

  Transport& transport_;
  size_t sets_;
  std::vector<std::atomic<KeptCall*>> places_;
};

}  // namespace shardway
