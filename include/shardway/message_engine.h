// What carries bytes between ranks of several hosts in a program without c10d.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace [[gnu::visibility("default")]] shardway {

// A message on its way. If it is dropped before it is done, the engine cancels what it can, and holds the
// keeper of what it cannot.
class EngineMessage {
 public:
  virtual ~EngineMessage() = default;

  // Lets the engine make progress and returns whether the memory of the message is the caller's again. Throws
  // std::runtime_error if the message failed.
  virtual bool is_done() = 0;

  // How many bytes were received, once it is done. It may be less than there was room for.
  virtual int64_t bytes() const = 0;
};

// Between two ranks, messages of one tag arrive in the order in which they were sent. Functions throw
// std::runtime_error if the engine fails.
class MessageEngine {
 public:
  // Keeps the memory of a message alive; may be null.
  using Keeper = std::shared_ptr<const void>;

  struct Letter {
    int64_t from = 0;
    std::vector<std::byte> bytes = {};
  };

  virtual ~MessageEngine() = default;
  virtual std::string name() const = 0;  // with its version; the same on every rank
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;

  // Whether any thread may call, several at a time. If not, only threads of the user's call.
  virtual bool serves_threads() const = 0;

  // Tags are 0, 1, … below this number.
  virtual int64_t tags() const = 0;

  // Every rank's block, in rank order. Collective; all blocks have one length.
  virtual std::vector<std::byte> exchange(std::span<const std::byte> mine) = 0;

  virtual std::unique_ptr<EngineMessage> send(std::span<const std::byte> bytes, int64_t to, int64_t tag,
                                              Keeper keeper) = 0;
  virtual std::unique_ptr<EngineMessage> receive(std::span<std::byte> room, int64_t from, int64_t tag,
                                                 Keeper keeper) = 0;

  // A short message of this tag that has come from any rank, if there is one.
  virtual std::optional<Letter> take(int64_t tag) = 0;
};

// Makes an engine of all ranks that are to join. Collective. A wait for another rank lasts no longer than
// the timeout. Throws std::invalid_argument if the caller made a mistake.
using EngineMaker = std::function<std::shared_ptr<MessageEngine>(std::chrono::milliseconds timeout)>;

// From now on, join() under mpirun on several hosts uses such an engine. Called by the component mpi before
// main begins.
void use_under_mpirun(EngineMaker make);

}  // namespace shardway
