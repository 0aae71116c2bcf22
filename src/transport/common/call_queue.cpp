#include "transport/common/call_queue.h"

#include <ATen/ThreadLocalState.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "shm/board/interrupt.h"
#include "transport/common/home_process.h"

namespace shardway {
namespace {

// Its caller releases what the call holds, and not the thread that ran it: to release a tensor of Python's, a
// thread that Python does not know makes a state of its own each time. Before Python 3.12, a child that is
// forked meanwhile hangs. The thread releases the call only if the caller has dropped it already.
class PostedJob : public Posted {
 public:
  explicit PostedJob(std::function<void()> call) : call_(std::move(call)) {}

  void run() {
    std::exception_ptr failure;
    try {
      call_();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    is_done_ = true;
    done_.notify_all();
  }

  // May be interrupted; the call still goes on.
  void wait() override {
    home_.check();
    while (!is_done_within(shm::kInterruptEvery)) shm::check_interrupt();
    release_if_done();
    check();
  }

  bool is_over() override {
    home_.check();
    const std::lock_guard lock(mutex_);
    return is_done_;
  }

  bool is_done_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return done_.wait_for(lock, time, [this] { return is_done_; });
  }

  void finish() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return is_done_; });
  }

  // Does nothing in a child of fork, where the lock may be held for ever.
  void release_if_done() {
    if (!home_.is_this()) return;
    std::function<void()> held;  // ends after the lock does
    const std::lock_guard lock(mutex_);
    if (is_done_) held.swap(call_);
  }

  // Once the call is over: throws what it threw.
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  HomeProcess home_;
  std::function<void()> call_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::exception_ptr failure_;
};

class SharedJob : public Posted {
 public:
  explicit SharedJob(std::shared_ptr<PostedJob> job) : job_(std::move(job)) {}
  SharedJob(const SharedJob&) = delete;
  SharedJob& operator=(const SharedJob&) = delete;
  ~SharedJob() override { job_->release_if_done(); }

  void wait() override { job_->wait(); }
  bool is_over() override { return job_->is_over(); }

 private:
  std::shared_ptr<PostedJob> job_;
};

std::function<void()> in_callers_mode(std::function<void()> call) {
  return [call = std::move(call), state = at::ThreadLocalState()] {
    const at::ThreadLocalStateGuard guard(state);
    call();
  };
}

}  // namespace

// The thread starts with the first posted call. It ends when it has nothing to do and its owner is gone. It
// keeps alive what it needs, so the owner's destructor does not wait for it.
class CallQueue::Thread : public std::enable_shared_from_this<CallQueue::Thread> {
 public:
  void check_process() const { home_.check(); }

  // Whether calls from the current thread have to wait for their turn.
  bool is_busy() {
    home_.check();
    const std::lock_guard lock(mutex_);
    return waiting_or_running_ > 0 && std::this_thread::get_id() != id_;
  }

  bool is_this() {
    home_.check();
    const std::lock_guard lock(mutex_);
    return std::this_thread::get_id() == id_;
  }

  std::shared_ptr<PostedJob> add(std::function<void()> call) {
    auto job = std::make_shared<PostedJob>(std::move(call));
    const std::lock_guard lock(mutex_);
    if (!has_started_) start();
    jobs_.push_back(job);
    ++waiting_or_running_;
    came_.notify_one();
    return job;
  }

  // Does nothing in a child of fork: nobody waits there, and the lock may be held for ever.
  void stop() {
    if (!home_.is_this()) return;
    const std::lock_guard lock(mutex_);
    stops_ = true;
    came_.notify_one();
  }

 private:
  // Runs before anything is queued, so that failing to start a thread leaves no trace.
  void start() {
    try {
      std::thread([self = shared_from_this()] { self->work(); }).detach();
    } catch (const std::system_error& error) {
      TORCH_CHECK_WITH(DistBackendError, false,
                       "no thread could be started for calls that go on by themselves: ", error.what());
    }
    has_started_ = true;
  }

  void work() {
    std::unique_lock lock(mutex_);
    id_ = std::this_thread::get_id();
    for (;;) {
      came_.wait(lock, [this] { return stops_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::shared_ptr<PostedJob> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job->run();
      job.reset();  // without the lock: what it holds may take others
      lock.lock();
      --waiting_or_running_;
    }
  }

  HomeProcess home_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::shared_ptr<PostedJob>> jobs_;
  int64_t waiting_or_running_ = 0;
  std::thread::id id_;
  bool has_started_ = false;
  bool stops_ = false;
};

CallQueue::CallQueue() : thread_(std::make_shared<Thread>()) {}

CallQueue::~CallQueue() { thread_->stop(); }

bool CallQueue::is_own_thread() const { return thread_->is_this(); }

void CallQueue::in_turn(const std::function<void()>& call, const std::function<void()>& give_up) {
  if (!thread_->is_busy()) return call();
  const std::shared_ptr<PostedJob> job = thread_->add(in_callers_mode(call));
  try {
    while (!job->is_done_within(shm::kInterruptEvery)) shm::check_interrupt();
  } catch (...) {
    if (give_up) give_up();
    job->finish();  // the call uses what this caller holds
    job->release_if_done();
    throw;
  }
  job->release_if_done();
  job->check();
}

std::unique_ptr<Posted> CallQueue::post(std::function<void()> call) {
  thread_->check_process();
  return std::make_unique<SharedJob>(thread_->add(in_callers_mode(std::move(call))));
}

}  // namespace shardway
