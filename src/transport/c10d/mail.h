// Messages between pairs of ranks, on which transports without shared memory are built.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/common/transport.h"

namespace shardway {

// Whether both sides know how long a message is.
enum class Lengths : uint8_t { are_known, vary };

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

// Gives each call of a group mail of its own, so that its messages are not taken for those of another.
class MailOffice {
 public:
  struct Opened {
    std::shared_ptr<Mail> mail;
    uint64_t number = 0;  // of the call; the same on every rank
  };

  virtual ~MailOffice() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Every rank opens mail for the same calls in the same order.
  virtual Opened open(const Subject& subject, Lengths lengths) = 0;

  // Ends the group because `rank` was lost, or failed: all other ranks are told, if the engine can. Returns
  // the error of this rank, which names the rank that was lost first.
  virtual std::string give_up(int64_t rank, const std::string& why) = 0;

  // What a thread has to do now and then while it waits for something else, so that messages move. Null if
  // they move by themselves.
  virtual std::function<void()> idle_work() { return nullptr; }
};

}  // namespace shardway
