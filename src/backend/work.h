// The work that a call returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/identity.h"
#include "c10d_calls/memory.h"
#include "shm/calls/mailbox.h"
#include "transport/common/home_process.h"
#include "transport/shm/shm_engine.h"

namespace shardway::backend {

// Work that reports its failure: to whoever asks or, if nobody has asked when it is destroyed, as a warning.
class ToldWork : public c10d::Work {
 public:
  ToldWork(int rank, c10d::OpType type, const char* title, std::shared_ptr<const Identity> identity,
           const std::optional<std::vector<at::Tensor>>& inputs);
  ~ToldWork() override;

  // In a child of fork the call is over and has failed. No lock is taken there: a thread of the parent may
  // hold it.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;

  // Somebody knows of the failure, or will.
  void set_told() const { is_told_ = true; }

 protected:
  const Identity& identity() const { return *identity_; }
  const HomeProcess& home() const { return home_; }
  const char* name() const { return title_ + sizeof("shardway:") - 1; }

 private:
  const char* title_;
  std::shared_ptr<const Identity> identity_;
  HomeProcess home_;
  mutable std::atomic<bool> is_told_{false};
};

// A collective call: finished when it is returned, or run by the group's thread. It keeps its tensors alive.
// A call of CUDA tensors is finished when it is queued: the current stream of whoever waits for it then waits
// for the device.
class CallWork : public ToldWork {
 public:
  CallWork(int rank, c10d::OpType type, const char* title, std::shared_ptr<const Identity> identity,
           const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs, uint64_t sequence_number);

  void complete(const std::exception_ptr& failure);

  // The call has succeeded before anybody else has this work: nobody is told, and no lock is taken.
  void complete_at_once();

  bool wait(std::chrono::milliseconds timeout) override;
  std::vector<at::Tensor> result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_number_; }

 private:
  void settle(c10::ivalue::Future& future);
  void note_where_device_is();
  void let_current_stream_wait();
  void wait_for_end(std::chrono::milliseconds timeout);

  std::vector<at::Tensor> outputs_;
  std::optional<c10::Event> is_done_on_device_;  // behind the call, of CUDA tensors
  uint64_t sequence_number_;
  bool was_over_at_once_ = false;
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

// What all receives of a group have in common.
struct Receiving {
  std::shared_ptr<ShmEngine> engine;
  std::shared_ptr<CallQueue> futures;
  std::shared_ptr<const Identity> identity;
  std::chrono::milliseconds timeout;
};

// A receive under way. The message is taken when somebody asks for it or, with a future, by a thread.
// Whatever becomes of this work, no other receive gets its message.
class ReceiveWork : public ToldWork {
 public:
  ReceiveWork(Receiving receiving, const at::Tensor& tensor, std::optional<int64_t> from, int64_t tag);

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

  shm::Mailbox& mailbox() const { return receiving_.engine->group().mailbox(); }

  Receiving receiving_;
  at::Tensor tensor_;
  Output output_;
  std::shared_ptr<shm::Receipt> receipt_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace shardway::backend
