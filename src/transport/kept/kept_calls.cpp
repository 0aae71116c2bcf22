#include "transport/kept/kept_calls.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace shardway {
namespace {

// A kept call takes memory for every rank of its group.
constexpr int64_t kMostRanksKept = 8192;
constexpr int64_t kLeastSets = 4;
constexpr int64_t kMostSets = 128;

class ArgumentHash {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15U ^ (hash_ >> 29); }
  void add(at::IntArrayRef values) {
    add(values.size());
    for (const int64_t value : values) add(static_cast<uint64_t>(value));
  }
  void add(const at::Tensor& t) {
    add(static_cast<uint64_t>(t.scalar_type()));
    if (!t.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) add(t.sizes());
  }
  uint64_t value() const { return hash_ ^ hash_ >> 32; }

 private:
  uint64_t hash_ = 14695981039346656037U;
};

bool is_given(const std::vector<int64_t>* given, bool was_given, const std::vector<int64_t>& before) {
  return given == nullptr ? !was_given : was_given && *given == before;
}

uintptr_t address_of(const at::Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()); }

}  // namespace

uint64_t KeptCallKey::hash() const {
  ArgumentHash hash;
  hash.add(static_cast<uint64_t>(collective) << 16 | static_cast<uint64_t>(op) << 8 | grad);
  hash.add(static_cast<uint64_t>(dim));
  hash.add(x);
  if (out != nullptr) hash.add(*out);
  if (sizes != nullptr) hash.add(*sizes);
  if (recv_sizes != nullptr) hash.add(*recv_sizes);
  return hash.value();
}

TensorKind TensorKind::of(const at::Tensor& t) {
  int64_t last = 0;  // strides are never negative
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  const int64_t elements = t.numel() == 0 ? 0 : last + 1;
  return {.dispatch_keys = t.key_set().raw_repr(),
          .dtype = t.scalar_type(),
          .sizes = c10::DimVector(t.sizes()),
          .strides = c10::DimVector(t.strides()),
          .spanned_bytes = static_cast<uintptr_t>(elements) * t.itemsize()};
}

// The keys come first: they say whether the sizes are plain numbers.
bool TensorKind::is_of(const at::Tensor& t) const {
  return t.key_set().raw_repr() == dispatch_keys && t.scalar_type() == dtype &&
         t.sizes() == at::IntArrayRef(sizes) && t.strides() == at::IntArrayRef(strides);
}

KeptCall::KeptCall(const KeptCallKey& key)
    : hash_(key.hash()),
      collective_(key.collective),
      op_(key.op),
      grad_(key.grad),
      dim_(key.dim),
      x_(TensorKind::of(key.x)),
      has_out_(key.out != nullptr),
      has_sizes_(key.sizes != nullptr),
      has_recv_sizes_(key.recv_sizes != nullptr) {
  if (has_out_) out_ = TensorKind::of(*key.out);
  if (has_sizes_) given_sizes_ = *key.sizes;
  if (has_recv_sizes_) recv_sizes_ = *key.recv_sizes;
}

bool KeptCall::is_of(const KeptCallKey& key) const {
  const bool is_same = key.collective == collective_ && key.op == op_ && key.grad == grad_ &&
                       key.dim == dim_ && (key.out != nullptr) == has_out_ && x_.is_of(key.x) &&
                       (!has_out_ || out_.is_of(*key.out)) && is_given(key.sizes, has_sizes_, given_sizes_) &&
                       is_given(key.recv_sizes, has_recv_sizes_, recv_sizes_);
  if (!is_same || !has_out_) return is_same;
  const uintptr_t x = address_of(key.x);
  const uintptr_t out = address_of(*key.out);
  return x + x_.spanned_bytes <= out || out + out_.spanned_bytes <= x;
}

void KeptCall::hear(const Blocks& blocks) {
  said_.clear();
  said_bytes_.assign(blocks.bytes.begin(), blocks.bytes.end());
  const auto* row = blocks.rows.const_data_ptr<uint8_t>();
  for (const int64_t bytes : said_bytes_) {
    said_.insert(said_.end(), row, row + bytes);
    row += blocks.rows.size(1);
  }
}

bool KeptCall::is_heard_again(const Blocks& blocks) const {
  if (!std::equal(said_bytes_.begin(), said_bytes_.end(), blocks.bytes.begin(), blocks.bytes.end()))
    return false;
  const auto* row = static_cast<const uint8_t*>(blocks.rows.const_data_ptr());
  const uint8_t* said = said_.data();
  for (const int64_t bytes : said_bytes_) {
    if (std::memcmp(row, said, static_cast<size_t>(bytes)) != 0) return false;
    said += bytes;
    row += opening.row_bytes;
  }
  return true;
}

KeptCalls::KeptCalls(Transport& transport)
    : transport_(transport),
      sets_(static_cast<size_t>(std::clamp(kMostRanksKept / transport.size(), kLeastSets, kMostSets))),
      places_(sets_ * kWays) {}

KeptCalls::~KeptCalls() {
  for (std::atomic<KeptCall*>& place : places_) delete place.load(std::memory_order_relaxed);
}

// Whoever takes a call out of its place has it alone: acquire pairs with the release by which it was put.
std::unique_ptr<KeptCall> KeptCalls::take(const KeptCallKey& key) {
  std::atomic<KeptCall*>* places = places_of(key.hash());
  for (size_t way = 0; way < kWays; ++way) {
    if (places[way].load(std::memory_order_relaxed) == nullptr) continue;
    std::unique_ptr<KeptCall> call(places[way].exchange(nullptr, std::memory_order_acquire));
    if (!call) continue;
    if (call->is_of(key)) return call;
    KeptCall* empty = nullptr;
    if (places[way].compare_exchange_strong(empty, call.get(), std::memory_order_release,
                                            std::memory_order_relaxed))
      (void)call.release();
  }
  return nullptr;
}

void KeptCalls::put(std::unique_ptr<KeptCall> call) {
  std::atomic<KeptCall*>* places = places_of(call->hash());
  for (size_t way = 0; way < kWays; ++way) {
    KeptCall* empty = nullptr;
    if (!places[way].compare_exchange_strong(empty, call.get(), std::memory_order_release,
                                             std::memory_order_relaxed))
      continue;
    (void)call.release();
    return;
  }
  // The last place is given up, so that of two calls that meet in it one stays.
  call.reset(places[kWays - 1].exchange(call.release(), std::memory_order_acq_rel));
}

}  // namespace shardway
