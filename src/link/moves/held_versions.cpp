#include "link/moves/held_versions.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "shardway/memory.h"
#include "shm/board/interrupt.h"
#include "shm/kernels/copy.h"
#include "transport/memory/tensors.h"
#include "transport/shm/shm_part.h"

namespace shardway::link {
namespace {

// Beyond the timeouts of the versions that are held: the thread that sends gives each of them up by itself.
constexpr std::chrono::seconds kGraceForSender{60};

bool is_plain(const at::Tensor& t) {
  return t.is_cpu() && t.layout() == at::kStrided && !t.is_conj() && !t.is_neg();
}

void copy_part(const at::Tensor& to, const at::Tensor& part, int64_t all_bytes) {
  TORCH_CHECK_VALUE(to.sizes() == part.sizes() && to.scalar_type() == part.scalar_type(),
                    "send: a part of shape ", part.sizes(), " is held in one of shape ", to.sizes());
  if (!is_plain(to) || !is_plain(part)) {
    to.copy_(part);
    return;
  }
  const auto item = static_cast<int64_t>(part.itemsize());
  const shm::FixedDims extent(std::span<const int64_t>(part.sizes().data(), part.sizes().size()));
  shm::copy_box(static_cast<std::byte*>(to.mutable_data_ptr()), byte_strides(to),
                static_cast<const std::byte*>(part.const_data_ptr()), byte_strides(part), extent, item,
                all_bytes);
}

at::Tensor room_for(const at::Tensor& part) {
  if (!part.defined()) return {};
  return part.is_cuda() ? empty_tensor_like(part) : empty(part.sizes(), part.scalar_type());
}

// Copies what this rank has to the places of the same names.
void copy_to(const TensorsByName& buffers, const TensorsByName& parts) {
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  for (const auto& [name, part] : parts) {
    if (!part.defined()) continue;
    to.push_back(buffers.at(name));
    from.push_back(part);
  }
  copy_parts(to, from);
  wait_for(gpus_of(parts));  // the thread that sends has a stream of its own
}

}  // namespace

void copy_parts(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& parts) {
  TORCH_CHECK_VALUE(to.size() == parts.size(), "send: ", parts.size(), " parts for ", to.size(), " places");
  const at::NoGradGuard no_grad;
  const int64_t bytes = std::accumulate(
      parts.begin(), parts.end(), int64_t{0},
      [](int64_t sum, const at::Tensor& part) { return sum + static_cast<int64_t>(part.nbytes()); });
  for (size_t i = 0; i < parts.size(); ++i) copy_part(to[i], parts[i], bytes);
}

std::vector<at::Device> gpus_of(const TensorsByName& tensors) {
  std::vector<at::Device> found;
  for (const auto& [_, tensor] : tensors) {
    if (tensor.defined() && tensor.is_cuda() &&
        std::find(found.begin(), found.end(), tensor.device()) == found.end())
      found.push_back(tensor.device());
  }
  return found;
}

void wait_for(const std::vector<at::Device>& gpus) {
  for (const at::Device& gpu : gpus) c10::impl::VirtualGuardImpl(gpu.type()).getStream(gpu).synchronize();
}

void HeldVersions::add(const TensorsByName& parts, Duration timeout) {
  raise_failure();
  SharedTensors buffers = buffers_for(parts, timeout);
  copy_to(*buffers, parts);
  const std::lock_guard lock(mutex_);
  if (is_closed_) C10_THROW_ERROR(DistBackendError, "send: the link is closed");
  queue_.push_back(std::move(buffers));
  changed_.notify_all();
}

void HeldVersions::drain(Duration timeout) {
  await_sender(timeout);
  raise_failure();
}

void HeldVersions::await_sender(Duration timeout) {
  wait([&] { return queue_.empty() && !is_sending_; }, timeout);
}

SharedTensors HeldVersions::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_closed_ || !queue_.empty(); });
  if (is_closed_) return nullptr;
  SharedTensors found = std::move(queue_.front());
  queue_.pop_front();
  is_sending_ = true;
  return found;
}

void HeldVersions::done(const SharedTensors& sent, const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = failure;
  free_.push_back(sent);
  is_sending_ = false;
  changed_.notify_all();
}

void HeldVersions::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  queue_.clear();
  changed_.notify_all();
}

int64_t HeldVersions::bytes() const {
  const std::lock_guard lock(mutex_);
  return made_ * version_bytes_;
}

SharedTensors HeldVersions::buffers_for(const TensorsByName& parts, Duration timeout) {
  const auto is_free = [&] { return !free_.empty(); };
  std::unique_lock lock(mutex_);
  if (made_ < kMost && !is_free()) {
    TensorsByName made;
    for (const auto& [name, part] : parts) made[name] = room_for(part);
    version_bytes_ = 0;
    for (const auto& [_, buffer] : made)
      version_bytes_ += buffer.defined() ? static_cast<int64_t>(buffer.nbytes()) : 0;
    ++made_;
    return std::make_shared<const TensorsByName>(std::move(made));
  }
  lock.unlock();
  wait(is_free, timeout);
  raise_failure();
  lock.lock();
  SharedTensors found = std::move(free_.back());
  free_.pop_back();
  return found;
}

// `is_over` is asked under the lock.
void HeldVersions::wait(const std::function<bool()>& is_over, Duration timeout) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + (kMost + 1) * timeout + kGraceForSender;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, shm::kInterruptEvery, is_over)) {
    if (Clock::now() > end)
      C10_THROW_ERROR(DistBackendError,
                      "send: the thread that sends the versions held does not come to an end");
    lock.unlock();
    shm::check_interrupt();
    lock.lock();
  }
}

void HeldVersions::raise_failure() {
  std::unique_lock lock(mutex_);
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace shardway::link
