// Messages between pairs of ranks, on which transports without shared memory are built.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace shardway {

// A message under way.
class Letter {
 public:
  virtual ~Letter() = default;
  virtual void wait() = 0;
};

// Between two ranks messages arrive in the order in which they were sent. `bytes` is 1-d, contiguous and of
// the same length on both sides. The message keeps it alive, and it must not change until the message is
// done.
class Mail {
 public:
  virtual ~Mail() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) = 0;
  virtual std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) = 0;

  // receive_up_to is like `receive`, but if takes_shorter() the message may be shorter than `bytes`.
  virtual bool takes_shorter() const = 0;
  virtual std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) = 0;
};

}  // namespace shardway
