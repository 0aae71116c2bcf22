// Messages between pairs of ranks: what a transport without a shared memory is made of.
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

// Between two ranks messages arrive in the order in which they were sent. `bytes` is 1-d, contiguous, of
// the same length on both sides, and stays as it is until the message is done, which keeps it alive.
class Mail {
 public:
  virtual ~Mail() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  virtual std::unique_ptr<Letter> send(const at::Tensor& bytes, int64_t to) = 0;
  virtual std::unique_ptr<Letter> receive(const at::Tensor& bytes, int64_t from) = 0;

  // As `receive`, of a message that may be shorter than `bytes`, where the engine allows it.
  virtual bool takes_shorter() const = 0;
  virtual std::unique_ptr<Letter> receive_up_to(const at::Tensor& bytes, int64_t from) = 0;
};

}  // namespace shardway
