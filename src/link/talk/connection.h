// A connection to the process that holds a link: a question gets one answer.
#pragma once

#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "link/talk/address.h"
#include "link/talk/claim.h"
#include "link/talk/open_sockets.h"
#include "link/talk/wire.h"
#include "shm/memory/file.h"

namespace shardway::link {

// The process that held the link has ended, or does not answer.
class HubGone : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// It left in peace, and there is nothing to tell: another process may hold the link.
class HubMoved : public HubGone {
  using HubGone::HubGone;
};

// The timeout has passed.
class TooLate : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The hub does not admit this process. If it is final, trying again is of no use.
class NotAdmitted : public std::runtime_error {
 public:
  NotAdmitted(const std::string& why, bool is_final) : std::runtime_error(why), is_final_(is_final) {}
  bool is_final() const { return is_final_; }

 private:
  bool is_final_;
};

// One thread at a time may use it.
class HubConnection {
 public:
  // Greets: both sides show that they know the secret. `meeting` names the place of a joint group. Throws
  // NotAdmitted, NotOurs, TooLate or std::system_error.
  HubConnection(shm::File socket, const Claim& claim, const std::string& secret, Instant deadline,
                const std::optional<std::string>& meeting = std::nullopt);

  const Claim& hub() const { return hub_; }

  // Throws HubGone, and closes the connection, if there is no answer.
  Json ask(const Json& question, Instant deadline);

  // Whether the hub has said something unasked, or has closed the connection. Asks nothing and never waits.
  bool has_news() const;

  void leave();
  void close();

  // Ends a wait of the thread that uses it. Any thread may call it.
  void wake();

 private:
  Claim greet(const Claim& claim, const std::string& secret, const std::optional<std::string>& meeting,
              Instant deadline);
  Json answer_to(const Json& question, Instant deadline);
  std::optional<Json> farewell();
  Json next(Instant deadline);
  Json next_of_any_kind(Instant deadline);
  void receive_some(Instant deadline);
  void send_all(const std::string& bytes, Instant deadline);

  std::mutex closing_;  // whoever wakes a wait finds the socket open, or none
  LinkSocket socket_;
  Inbox inbox_;
  Claim hub_;
};

}  // namespace shardway::link
