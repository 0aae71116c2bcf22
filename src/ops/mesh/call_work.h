// A call as a c10d::Work, for callers of torch.distributed that wait for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace shardway {

class MeshWork : public c10d::Work {
 public:
  MeshWork(c10d::OpType op, at::Tensor filled)
      : Work(-1, op),
        filled_(std::move(filled)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void run(const std::function<void()>& call) {
    try {
      call();
    } catch (...) {
      finish(std::current_exception());
      future_->setError(std::current_exception());
      return;
    }
    finish();
    future_->markCompleted(result());
  }

  std::vector<at::Tensor> result() override { return {filled_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  at::Tensor filled_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace shardway
