// Tensors as memory without gaps.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace shardway::backend {

// Elements from or to each rank.
struct Counts {
  int64_t each = 0;
  std::vector<int64_t> by_rank = {};  // empty: `each` for all

  int64_t of(int64_t rank) const { return by_rank.empty() ? each : by_rank[static_cast<size_t>(rank)]; }
};

// Both throw c10::ValueError for tensors that cannot be moved, or if the list does not fit.
void check_tensor(const at::Tensor& t, c10::DeviceType device = c10::DeviceType::CPU);
void check_list(const std::vector<at::Tensor>& list, int64_t size, at::ScalarType dtype,
                c10::DeviceType device = c10::DeviceType::CPU);

// What c10d passes as a list of one, and lists that go together. They throw c10::ValueError in the name of
// the call.
const at::Tensor& only(const char* name, const std::vector<at::Tensor>& tensors);
const std::vector<at::Tensor>& only(const char* name, const std::vector<std::vector<at::Tensor>>& lists);
void check_lengths(const char* name, size_t outputs, size_t inputs);

// Returns the tensor, or a contiguous copy of it.
at::Tensor packed(const at::Tensor& t);

// Returns the tensors one after another: a view if they lie so already, else a copy in memory that peers can
// read, on the tensors' device.
at::Tensor joined(const std::vector<at::Tensor>& list);

std::span<const std::byte> bytes_of(const at::Tensor& t);

struct Span {
  int64_t begin = 0;
  int64_t bytes = 0;
};

// Memory that is written, by rank; offsets count from `base`.
struct Target {
  std::byte* base = nullptr;
  std::vector<Span> parts = {};
};

// A tensor that a call writes, or a packed stand-in for it.
class Output {
 public:
  explicit Output(const at::Tensor& t);

  const at::Tensor& buffer() const { return buffer_; }
  std::byte* data() const { return static_cast<std::byte*>(buffer_.mutable_data_ptr()); }

  // Once the result is there: copies it from the stand-in, if there is one.
  void finish() const;

 private:
  at::Tensor tensor_;
  at::Tensor buffer_;
};

// The outputs of a list.
class Outputs {
 public:
  explicit Outputs(const std::vector<at::Tensor>& list);

  Target target() const;
  void finish() const;

 private:
  std::vector<Output> outputs_;
};

// The spans of contiguous parts, from their counts of elements.
std::vector<Span> spans_of(const Counts& counts, int64_t size, int64_t element_bytes);

Counts counts_of(const std::vector<at::Tensor>& list);

}  // namespace shardway::backend
