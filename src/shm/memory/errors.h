// What can go wrong between ranks that share memory.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace shardway::shm {

// A peer is not there any more, or did not come in time. The group cannot be used again.
class PeerLost : public std::runtime_error {
 public:
  PeerLost(int64_t peer, const std::string& why) : PeerLost(peer, text_of(peer, why), Whole{}) { why_ = why; }

  // For what this rank did itself, or for nobody in particular: `text` is the whole message.
  static PeerLost said(int64_t rank, const std::string& text) { return {rank, text, Whole{}}; }

  int64_t peer() const { return peer_; }

  // What happened to the peer; empty if the message is not about it.
  const std::string& why() const { return why_; }

 private:
  struct Whole {};
  static std::string text_of(int64_t peer, const std::string& why) {
    return "rank " + std::to_string(peer) + " could not be reached: " + why;
  }
  PeerLost(int64_t peer, const std::string& text, Whole /*unused*/) : std::runtime_error(text), peer_(peer) {}

  int64_t peer_;
  std::string why_;
};

// Ranks are in different calls, or in different calls of one kind. All of them throw it; the group goes on.
class Disagreement : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An arena cannot grow: it has reached its size, or the machine or the control group has too little memory.
class ArenaFull : public std::runtime_error {
 public:
  ArenaFull(int64_t needed, int64_t available)
      : std::runtime_error("no shared memory: " + std::to_string(needed) + " bytes are needed, " +
                           std::to_string(available) + " are available"),
        needed_bytes(needed),
        available_bytes(available) {}

  int64_t needed_bytes;
  int64_t available_bytes;
};

// A child of fork used what belongs to its parent.
class WrongProcess : public std::logic_error {
  using std::logic_error::logic_error;
};

}  // namespace shardway::shm
