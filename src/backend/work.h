// What a call gives back.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/memory.h"
#include "shm/mailbox.h"
#include "transport/shm_engine.h"

namespace shardway::backend {

// A collective call: over when it is given back, or run by the group's thread. It keeps its tensors.
class CallWork : public c10d::Work {
 public:
  CallWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
           std::vector<at::Tensor> outputs, uint64_t sequence_number);

  void complete(const std::exception_ptr& failure);

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }

 private:
  void settle(c10::ivalue::Future& future);

  const char* title_;
  std::vector<at::Tensor> outputs_;
  uint64_t sequence_number_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> has_settled_{false};
};

// Several calls as one.
class ManyWorks : public c10d::Work {
 public:
  explicit ManyWorks(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

// A message that is awaited. It is taken when somebody asks for it; with a future, by a thread. Whatever
// becomes of this work, the message that it stands for is never another's.
class ReceiveWork : public c10d::Work {
 public:
  ReceiveWork(std::shared_ptr<ShmEngine> engine, std::shared_ptr<Turns> futures, const at::Tensor& tensor,
              std::optional<int64_t> from, int64_t tag, std::chrono::milliseconds timeout);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return {tensor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void check() const;
  template <class Body>
  void settle(Body&& body);

  std::shared_ptr<ShmEngine> engine_;
  std::shared_ptr<Turns> futures_;
  at::Tensor tensor_;
  Output output_;
  std::shared_ptr<shm::Receipt> receipt_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace shardway::backend
