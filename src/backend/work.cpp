#include "backend/work.h"

#include <ATen/ATen.h>

#include "transport/shm_errors.h"

namespace shardway::backend {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> new_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

c10::IValue list_of(const std::vector<at::Tensor>& tensors) { return c10::IValue(tensors); }

}  // namespace

CallWork::CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor> outputs, uint64_t sequence_number)
    : Work(rank, type, title, inputs),
      title_(title),
      outputs_(std::move(outputs)),
      sequence_number_(sequence_number) {}

void CallWork::complete(const std::exception_ptr& failure) {
  finish(failure);
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(mutex_);
    future = future_;
  }
  if (future) settle(*future);
}

// The one who completes the call and the one who asks for its future may both come here.
void CallWork::settle(c10::ivalue::Future& future) {
  if (has_settled_.exchange(true)) return;
  if (const auto failure = exception()) {
    future.setErrorIfNeeded(failure);
  } else {
    future.markCompleted(list_of(outputs_));
  }
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, is_over);
  } else {
    TORCH_CHECK_WITH(DistBackendError, cv_.wait_for(lock, timeout, is_over), title_,
                     " caught collective operation timeout: it did not end within ", timeout.count(),
                     " ms (rank ", rank_, ")");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

std::vector<at::Tensor> CallWork::result() { return outputs_; }

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = new_future();
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

bool ManyWorks::wait(std::chrono::milliseconds timeout) {
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
          each.toFuture()->value();  // throws what it has
        }
        return list_of(results);
      },
      c10::ListType::create(c10::TensorType::get()));
}

ReceiveWork::ReceiveWork(std::shared_ptr<ShmEngine> engine, std::shared_ptr<Turns> futures,
                         const at::Tensor& tensor, std::optional<int64_t> from, int64_t tag)
    : Work(static_cast<int>(engine->group().rank()), from ? c10d::OpType::RECV : c10d::OpType::RECVANYSOURCE,
           "shardway:recv"),
      engine_(std::move(engine)),
      futures_(std::move(futures)),
      tensor_(tensor),
      output_(tensor) {
  const at::Tensor& buffer = output_.buffer();
  const shm::Receipt wanted{.from = from,
                            .label = {.tag = tag, .kind = static_cast<int64_t>(tensor.scalar_type())},
                            .to = {output_.data(), buffer.nbytes()},
                            .owner = std::make_shared<at::Tensor>(buffer)};
  translated(rank_, [&] { receipt_ = engine_->group().mailbox().ask(wanted); });
}

bool ReceiveWork::isCompleted() {
  bool is_done = false;
  translated(rank_, [&] { is_done = engine_->group().mailbox().is_done(receipt_); });
  if (is_done && is_as_asked()) settle();  // else wait() says what came
  return is_done;
}

bool ReceiveWork::isSuccess() const { return exception() == nullptr; }

int ReceiveWork::sourceRank() const { return static_cast<int>(receipt_->sender); }

void ReceiveWork::abort() { engine_->group().mailbox().drop(receipt_); }

bool ReceiveWork::wait(std::chrono::milliseconds timeout) {
  const auto time = timeout > kNoTimeout ? timeout : engine_->group().timeout();
  translated(rank_, [&] { engine_->group().mailbox().wait(receipt_, time); });
  settle();
  return true;
}

bool ReceiveWork::is_as_asked() const {
  return receipt_->sent_kind == static_cast<int64_t>(tensor_.scalar_type()) &&
         receipt_->sent_bytes == static_cast<int64_t>(output_.buffer().nbytes());
}

void ReceiveWork::settle() {
  const std::lock_guard lock(mutex_);
  const auto sent_dtype = static_cast<at::ScalarType>(receipt_->sent_kind);
  TORCH_CHECK_VALUE(is_as_asked(), "recv: rank ", receipt_->sender, " sent ",
                    receipt_->sent_bytes / static_cast<int64_t>(c10::elementSize(sent_dtype)),
                    " elements of ", c10::getDtypeNames(sent_dtype).first, ", but the tensor takes ",
                    tensor_.numel(), " of ", c10::getDtypeNames(tensor_.scalar_type()).first, " (rank ",
                    rank_, ")");
  if (is_settled_) return;
  is_settled_ = true;
  completed_ = true;
  output_.finish();
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
}

c10::intrusive_ptr<c10::ivalue::Future> ReceiveWork::getFuture() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = new_future();
  }
  const auto self = c10::intrusive_ptr<ReceiveWork>::reclaim_copy(this);
  futures_->post([self] {
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
