#include "backend/work.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <sstream>

#include "shm/board/interrupt.h"
#include "transport/common/starting_stream.h"
#include "transport/shm/shm_errors.h"

namespace shardway::backend {
namespace {

// A longer wait could overflow the clock.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 3650);

// Of a result that is on these tensors' device.
c10::intrusive_ptr<c10::ivalue::Future> new_future(const std::vector<at::Tensor>& tensors) {
  std::vector<c10::Device> devices;
  if (!tensors.empty() && tensors.front().is_cuda()) devices.push_back(tensors.front().device());
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
}

// The content of a message, such as "3 elements of float32". The kind is what the sender claims.
std::string content_of(int64_t kind, int64_t bytes) {
  std::ostringstream text;
  if (kind < 0 || kind >= static_cast<int64_t>(at::ScalarType::Undefined)) {
    text << bytes << " bytes of an unknown dtype";
  } else {
    const auto dtype = static_cast<at::ScalarType>(kind);
    text << bytes / static_cast<int64_t>(c10::elementSize(dtype)) << " elements of "
         << c10::getDtypeNames(dtype).first;
  }
  return text.str();
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of another kind";
  }
}

c10::IValue list_of(const std::vector<at::Tensor>& tensors) { return c10::IValue(tensors); }

}  // namespace

ToldWork::ToldWork(int rank, c10d::OpType type, const char* title, std::shared_ptr<const Identity> identity,
                   const std::optional<std::vector<at::Tensor>>& inputs)
    // The base class makes an event of the title, which costs something even if no profiler runs.
    : Work(rank, type, at::hasCallbacks() ? title : nullptr, inputs),
      title_(title),
      identity_(std::move(identity)) {}

ToldWork::~ToldWork() {
  if (exception_ == nullptr || is_told_) return;
  try {
    TORCH_WARN("shardway: ", name(), " of the group ", identity_->name(),
               " failed and nobody waited for it: ", text_of(exception_));
  } catch (...) {  // thrown by a warning handler: there is nobody to throw it to
    is_told_ = true;
  }
}

bool ToldWork::isCompleted() { return !home_.is_this() || Work::isCompleted(); }

bool ToldWork::isSuccess() const {
  if (!home_.is_this()) return false;
  const bool is_success = Work::isSuccess();
  if (!is_success) set_told();
  return is_success;
}

std::exception_ptr ToldWork::exception() const {
  set_told();
  try {
    home_.check();
  } catch (const c10::DistBackendError&) {
    return std::current_exception();
  }
  return Work::exception();
}

CallWork::CallWork(int rank, c10d::OpType type, const char* title, std::shared_ptr<const Identity> identity,
                   const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
                   uint64_t sequence_number)
    // Only a profiler reads the inputs.
    : ToldWork(rank, type, title, std::move(identity),
               at::hasCallbacks() ? std::optional(inputs) : std::nullopt),
      outputs_(std::move(outputs)),
      sequence_number_(sequence_number) {}

void CallWork::note_where_device_is() {
  if (outputs_.empty() || !outputs_.front().is_cuda()) return;
  is_done_on_device_.emplace(c10::DeviceType::CUDA);
  is_done_on_device_->record(current_stream(outputs_.front().device()));
}

void CallWork::complete_at_once() {
  note_where_device_is();
  was_over_at_once_ = true;
  if (recordFunctionEndCallback_) return finish();
  completed_ = true;
}

void CallWork::complete(const std::exception_ptr& failure) {
  note_where_device_is();
  finish(failure);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future) settle(*future);
}

void CallWork::let_current_stream_wait() {
  if (is_done_on_device_) is_done_on_device_->block(current_stream(outputs_.front().device()));
}

// Both the thread that completes the call and a thread that asks for its future may come here.
void CallWork::settle(c10::ivalue::Future& future) {
  if (has_settled_.exchange(true)) return;
  let_current_stream_wait();  // behind which the future notes where the result is ready
  if (const auto failure = exception()) {
    future.setErrorIfNeeded(failure);
  } else {
    future.markCompleted(list_of(outputs_));
  }
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  home().check();  // before the lock: in a child of fork a thread of the parent may hold it
  if (!was_over_at_once_) wait_for_end(timeout);
  let_current_stream_wait();
  return true;
}

// May be interrupted; the call still goes on.
void CallWork::wait_for_end(std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return completed_; };
  const auto end = is_over() ? Clock::time_point() : Clock::now() + std::min(timeout, kLongestWait);
  const auto may_wait = [&] { return timeout == kNoTimeout || Clock::now() < end; };
  while (!is_over() && may_wait()) {
    const auto next_check = Clock::now() + shm::kInterruptEvery;
    if (cv_.wait_until(lock, timeout == kNoTimeout ? next_check : std::min(next_check, end), is_over)) break;
    lock.unlock();
    shm::check_interrupt();
    lock.lock();
  }
  identity().explain([&] {
    TORCH_CHECK_WITH(DistBackendError, is_over(), name(),
                     ": caught collective operation timeout: it did not end within ", timeout.count(),
                     " ms (rank ", rank_, ")");
  });
  set_told();
  if (exception_) std::rethrow_exception(exception_);
}

std::vector<at::Tensor> CallWork::result() { return outputs_; }

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  home().check();
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    set_told();
    future_ = new_future(outputs_);
    is_over = completed_;
  }
  if (is_over) settle(*future_);
  return future_;
}

bool ManyWorks::isCompleted() {
  for (const auto& work : works_) {
    if (!work->isCompleted()) return false;
  }
  return true;
}

bool ManyWorks::isSuccess() const {
  for (const auto& work : works_) {
    if (!work->isSuccess()) return false;
  }
  return true;
}

// Throws the first failure; the others count as told.
bool ManyWorks::wait(std::chrono::milliseconds timeout) {
  for (const auto& work : works_) {
    if (const auto* told = dynamic_cast<const ToldWork*>(work.get())) told->set_told();
  }
  for (const auto& work : works_) work->wait(timeout);
  return true;
}

std::vector<at::Tensor> ManyWorks::result() {
  std::vector<at::Tensor> all;
  for (const auto& work : works_) {
    for (const at::Tensor& t : work->result()) all.push_back(t);
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> ManyWorks::getFuture() {
  c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
      c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));
  for (const auto& work : works_) futures.push_back(work->getFuture());
  return c10::collectAll(futures)->then(
      [results = result()](c10::ivalue::Future& all) {
        for (const auto& one : all.value().toList()) {
          const c10::IValue each = one;
          each.toFuture()->value();  // throws its error, if it has one
        }
        return list_of(results);
      },
      c10::ListType::create(c10::TensorType::get()));
}

ReceiveWork::ReceiveWork(Receiving receiving, const at::Tensor& tensor, std::optional<int64_t> from,
                         int64_t tag)
    : ToldWork(static_cast<int>(receiving.engine->group().rank()),
               from ? c10d::OpType::RECV : c10d::OpType::RECVANYSOURCE, "shardway:recv", receiving.identity,
               std::nullopt),
      receiving_(std::move(receiving)),
      tensor_(tensor),
      output_(tensor.is_cpu() ? tensor : at::empty(tensor.sizes(), tensor.options().device(at::kCPU))) {
  const at::Tensor& buffer = output_.buffer();
  const shm::Receipt wanted{.from = from,
                            .label = {.tag = tag, .kind = static_cast<int64_t>(tensor.scalar_type())},
                            .to = {output_.data(), buffer.nbytes()},
                            .owner = std::make_shared<at::Tensor>(buffer)};
  const auto ask = [&] { receipt_ = mailbox().ask(wanted); };
  identity().explain([&] { translated(rank_, ask, "recv"); });
}

// Ends the work, once: runs `body` and keeps what it throws as the work's exception.
template <class Body>
void ReceiveWork::settle(Body&& body) {
  const std::lock_guard lock(mutex_);
  if (completed_) return;
  completed_ = true;
  try {
    identity().explain([&] { translated(rank_, body, "recv"); });
  } catch (...) {
    exception_ = std::current_exception();
  }
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

bool ReceiveWork::isCompleted() {
  if (!home().is_this()) return true;
  try {
    if (!mailbox().is_done(receipt_)) {
      if (!receiving_.engine->group().is_lost()) return ToldWork::isCompleted();
      mailbox().wait(receipt_, receiving_.timeout);  // throws
    }
    settle([this] { check(); });
  } catch (...) {
    settle([failure = std::current_exception()] { std::rethrow_exception(failure); });
  }
  return true;
}

int ReceiveWork::sourceRank() const { return static_cast<int>(receipt_->sender); }

void ReceiveWork::abort() { mailbox().give_up(receipt_); }

bool ReceiveWork::wait(std::chrono::milliseconds timeout) {
  home().check();
  if (!ToldWork::isCompleted()) {
    try {
      mailbox().wait(receipt_, timeout > kNoTimeout ? timeout : receiving_.timeout);
      settle([this] { check(); });
    } catch (...) {
      settle([failure = std::current_exception()] { std::rethrow_exception(failure); });
    }
  }
  if (const auto failure = exception()) std::rethrow_exception(failure);
  return true;
}

// Throws unless the message is what was asked for. Then copies it to the tensor, if it is not there already.
void ReceiveWork::check() const {
  TORCH_CHECK_WITH(DistBackendError, !receipt_->is_given_up, "recv: it was aborted (rank ", rank_, ")");
  const auto element_bytes = static_cast<int64_t>(tensor_.element_size());
  const bool is_as_asked = receipt_->sent_kind == static_cast<int64_t>(tensor_.scalar_type()) &&
                           receipt_->sent_bytes == static_cast<int64_t>(output_.buffer().nbytes());
  TORCH_CHECK_VALUE(is_as_asked, "recv: rank ", receipt_->sender, " sent ",
                    content_of(receipt_->sent_kind, receipt_->sent_bytes), ", but the tensor takes ",
                    content_of(static_cast<int64_t>(tensor_.scalar_type()), tensor_.numel() * element_bytes),
                    " (rank ", rank_, ")");
  output_.finish();
  if (!tensor_.is_cpu()) tensor_.copy_(output_.buffer());
}

c10::intrusive_ptr<c10::ivalue::Future> ReceiveWork::getFuture() {
  home().check();
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = new_future({tensor_});
  }
  const auto self = c10::intrusive_ptr<ReceiveWork>::reclaim_copy(this);
  receiving_.futures->post([self] {
    try {
      self->wait(kNoTimeout);
      self->future_->markCompleted(list_of({self->tensor_}));
    } catch (...) {
      self->future_->setErrorIfNeeded(std::current_exception());
    }
  });
  return future_;
}

}  // namespace shardway::backend
