// The messages of a group's calls by a MessageEngine: numbered, waited for with a limit, and a farewell to
// all if the group ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "shardway/message_engine.h"
#include "shm/memory/errors.h"

namespace shardway {

// The messages of one call: only those of the same call on both ranks meet.
struct CallOfCourier {
  uint64_t number = 0;
  uint64_t mark = 0;
};

// Whether a receiver knows how long the message is.
enum class Room : uint8_t { is_exact, may_be_larger };

// Functions throw shm::PeerLost, naming the rank that was lost first, if a message did not come or a rank
// gave up; then the group is over. In a child of fork they throw shm::WrongProcess.
class Courier {
 public:
  Courier(std::shared_ptr<MessageEngine> engine, std::chrono::milliseconds timeout);

  int64_t rank() const { return engine_->rank(); }
  int64_t size() const { return engine_->size(); }
  bool serves_threads() const { return engine_->serves_threads(); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // Every rank opens the same calls in the same order.
  CallOfCourier open(uint64_t mark);

  // A message on its way, to or from `peer`.
  class Errand {
   public:
    void wait();
    int64_t bytes() const { return message_->bytes(); }

   private:
    friend class Courier;

    Courier* courier_ = nullptr;
    std::unique_ptr<EngineMessage> message_;
    int64_t peer_ = 0;
    int64_t expected_ = -1;  // bytes; -1: any number
    std::thread::id poster_ = std::this_thread::get_id();
  };

  Errand send(const CallOfCourier& call, std::span<const std::byte> bytes, int64_t to,
              MessageEngine::Keeper keeper = nullptr);
  Errand receive(const CallOfCourier& call, std::span<std::byte> room, int64_t from, Room is = Room::is_exact,
                 MessageEngine::Keeper keeper = nullptr);

  // Lets the engine move what is on its way; never throws. An engine may move messages only while it is
  // called, those too whose memory is the sender's again: a thread that waits for something else calls this.
  void keep_moving();

  // Ends the group because `rank`, this one or one of its host, was lost or failed, and tells the others.
  // Returns what this rank throws: it names the rank that was lost first.
  shm::PeerLost give_up(int64_t rank, const std::string& why);

 private:
  struct End {
    int64_t rank = 0;
    std::string why = {};
  };

  template <class Body>
  std::invoke_result_t<Body> reaching(int64_t peer, Body&& body);
  void wait(Errand& errand);
  shm::PeerLost end_by(int64_t rank, const std::string& why);
  void await_farewell();
  void check() const;
  void hear_farewell();
  void tell_all(const End& end);
  int64_t tag_of(const CallOfCourier& call) const;

  std::shared_ptr<MessageEngine> engine_;
  std::chrono::milliseconds timeout_;
  uint64_t generation_;  // of fork
  uint64_t calls_ = 0;
  mutable std::mutex mutex_;
  std::optional<End> end_;
  std::vector<std::unique_ptr<EngineMessage>> farewells_;
};

}  // namespace shardway
