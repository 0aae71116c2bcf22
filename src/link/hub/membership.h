// This process's place on a link, kept across the death of the process that holds the link.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "link/hub/hub.h"
#include "link/talk/connection.h"

namespace shardway::link {

class Membership {
 public:
  Membership(LinkAddress address, Claim claim, std::string secret)
      : address_(std::move(address)), claim_(std::move(claim)), secret_(std::move(secret)) {}

  const LinkAddress& address() const { return address_; }
  const Claim& claim() const { return claim_; }

  // Null before connect, and after the hub was lost.
  const std::shared_ptr<HubConnection>& connection() const { return connection_; }

  // To the hub, or as the hub if this process is a rank 0 that can listen at the address. Throws
  // std::invalid_argument if the hub refuses, TooLate if there is none.
  void connect(Instant deadline);

  // A second connection, to where the ranks of a joint group meet. Throws HubGone.
  std::shared_ptr<HubConnection> visit(const std::string& meeting, Instant deadline);

  // After the hub was lost.
  void forget_connection();
  void leave();

  // Ends every wait of the thread that uses it, now and later. Any thread may call it.
  void give_up();

 private:
  void try_to_hold();
  void set_connection(std::shared_ptr<HubConnection> connection);

  // Returns why it did not connect this time, or nothing if it did.
  std::string try_to_connect(Instant deadline, bool is_patient);

  LinkAddress address_;
  Claim claim_;
  std::string secret_;
  std::unique_ptr<LinkHub> hub_;
  std::shared_ptr<HubConnection> connection_;
  std::weak_ptr<HubConnection> visit_;
  std::mutex changing_;  // held to change the connections, and by another thread to read them
  std::atomic<bool> has_given_up_{false};
};

}  // namespace shardway::link
