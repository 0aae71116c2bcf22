// Versions that were copied and are sent later, in order, while their caller goes on.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "link/moves/declaration.h"

namespace shardway::link {

// Copies each of `parts` to the one of `to` with the same number, shape and dtype. If all together are larger
// than a cache, they go past it: nobody reads them soon, and the memory that they overwrite is not read
// first. Throws c10::ValueError if a pair does not match.
void copy_parts(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& parts);

// The GPUs of some tensors; until what was queued on their current streams is done.
[[gnu::visibility("default")]] std::vector<at::Device> gpus_of(const TensorsByName& tensors);
void wait_for(const std::vector<at::Device>& gpus);

// At most two. One thread adds, another takes and sends. What went wrong is thrown in the thread that adds.
class [[gnu::visibility("default")]] HeldVersions {
 public:
  static constexpr int64_t kMost = 2;

  using Duration = std::chrono::milliseconds;

  // Copies a version into memory that peers can read. If two are held, waits for the slowest reader of the
  // one before the last. `timeout` limits how long a version takes to be sent. Throws c10::DistBackendError
  // after `close`.
  void add(const TensorsByName& parts, Duration timeout);

  // Returns when all have been sent. Throws what went wrong with one of them.
  void drain(Duration timeout);

  // The same, and leaves what went wrong to the next call.
  void await_sender(Duration timeout);

  // For the thread that sends: the next version, as soon as there is one. Null after `close`.
  SharedTensors next();

  // The version that `next` gave has been sent, or why not. Nothing of it is used any more.
  void done(const SharedTensors& sent, const std::exception_ptr& failure);

  // Sends no more. Any thread may call it.
  void close();

  // The memory of all versions that can be held now.
  int64_t bytes() const;

 private:
  SharedTensors buffers_for(const TensorsByName& parts, Duration timeout);
  void wait(const std::function<bool()>& is_over, Duration timeout);
  void raise_failure();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SharedTensors> free_;
  int64_t made_ = 0;
  int64_t version_bytes_ = 0;
  std::deque<SharedTensors> queue_;
  bool is_sending_ = false;
  bool is_closed_ = false;
  std::exception_ptr failure_;
};

}  // namespace shardway::link
