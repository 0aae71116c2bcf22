#include "transport/shm_engine.h"

#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "shm/errors.h"
#include "shm/execution.h"
#include "shm/header.h"
#include "shm/thresholds.h"
#include "transport/shm_part.h"

namespace shardway {
namespace {

// Two copies more than a pull, against one meeting less.
constexpr int64_t kSlotBytes = 16 << 10;

// Runs `body`; what src/shm throws becomes what torch knows.
template <class Body>
void translated(int64_t rank, Body&& body) {
  try {
    body();
  } catch (const shm::PeerLost& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::BadHeader& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::WrongProcess& error) {
    TORCH_CHECK_WITH(DistBackendError, false, error.what(), " (rank ", rank, ")");
  } catch (const shm::ArenaFull& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, error.what(), " (rank ", rank, ")");
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_VALUE(false, error.what(), " (rank ", rank, ")");
  }
}

class Job : public Posted {
 public:
  explicit Job(std::function<void()> call) : call_(std::move(call)) {}

  void run() {
    std::exception_ptr failure;
    try {
      call_();
    } catch (...) {
      failure = std::current_exception();
    }
    call_ = nullptr;  // lets go of its tensors
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    is_done_ = true;
    done_.notify_all();
  }

  void wait() override {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return is_done_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::function<void()> call_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::exception_ptr failure_;
};

class SharedJob : public Posted {
 public:
  explicit SharedJob(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  void wait() override { job_->wait(); }

 private:
  std::shared_ptr<Job> job_;
};

}  // namespace

// Starts with the first posted call, and ends when it has nothing to do and the engine is gone. It keeps
// what it needs itself, so that the end of the engine does not wait for it.
class ShmEngine::Thread : public std::enable_shared_from_this<ShmEngine::Thread> {
 public:
  // Whether calls of this thread have to wait for their turn.
  bool is_busy() {
    const std::lock_guard lock(mutex_);
    return waiting_or_running_ > 0 && std::this_thread::get_id() != id_;
  }

  std::shared_ptr<Job> add(std::function<void()> call) {
    auto job = std::make_shared<Job>(std::move(call));
    const std::lock_guard lock(mutex_);
    jobs_.push_back(job);
    ++waiting_or_running_;
    if (!has_started_) {
      has_started_ = true;
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    }
    came_.notify_one();
    return job;
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    came_.notify_one();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    id_ = std::this_thread::get_id();
    for (;;) {
      came_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::shared_ptr<Job> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job->run();
      lock.lock();
      --waiting_or_running_;
    }
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::shared_ptr<Job>> jobs_;
  int64_t waiting_or_running_ = 0;
  std::thread::id id_;
  bool has_started_ = false;
  bool stops_ = false;
};

ShmEngine::ShmEngine(std::shared_ptr<shm::Group> group)
    : group_(std::move(group)), thread_(std::make_shared<Thread>()) {}

ShmEngine::~ShmEngine() { thread_->stop(); }

int64_t ShmEngine::slot_bytes() { return kSlotBytes; }

void ShmEngine::in_turn(const std::function<void()>& call) {
  if (thread_->is_busy()) {
    thread_->add(call)->wait();
  } else {
    call();
  }
}

at::Tensor ShmEngine::all_gather_block(const at::Tensor& mine, int64_t row_bytes) {
  at::Tensor rows = at::empty({group_->size(), row_bytes}, at::kByte);
  const std::span note(static_cast<const std::byte*>(mine.const_data_ptr()),
                       static_cast<size_t>(mine.numel()));
  in_turn([&] {
    translated(group_->rank(), [&] {
      group_->gather_notes(note, static_cast<std::byte*>(rows.mutable_data_ptr()), row_bytes);
    });
  });
  return rows;
}

void ShmEngine::run(const Route& route, const at::Tensor& x, const at::Tensor& out,
                    const KnownInputs& known) {
  in_turn([&] {
    translated(group_->rank(), [&] {
      const ShmPart part(route, x, out, known);
      group_->run(part.part());
    });
  });
}

void ShmEngine::run_alone(const Route& route, const at::Tensor& x, const at::Tensor& out,
                          const KnownInputs& known) {
  translated(route.rank, [&] { shm::run_alone(ShmPart(route, x, out, known).part()); });
}

std::unique_ptr<Posted> ShmEngine::post(std::function<void()> call) {
  auto in_callers_mode = [call = std::move(call), state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    call();
  };
  return std::make_unique<SharedJob>(thread_->add(std::move(in_callers_mode)));
}

}  // namespace shardway
