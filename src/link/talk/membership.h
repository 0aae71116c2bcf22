// This process's place on a link, kept across the death of the process that holds the link.
#pragma once

#include <memory>
#include <string>

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

  // To the hub, which may be started later than this process. Throws std::invalid_argument if the hub
  // refuses, TooLate if there is none.
  void connect(Instant deadline);

  // A second connection, to where the ranks of a joint group meet. Throws HubGone.
  std::shared_ptr<HubConnection> visit(const std::string& meeting, Instant deadline) const;

  void forget_connection();
  void leave();

 private:
  // Returns why it did not connect this time, or nothing if it did.
  std::string try_to_connect(Instant deadline, bool is_patient);

  LinkAddress address_;
  Claim claim_;
  std::string secret_;
  std::shared_ptr<HubConnection> connection_;
};

}  // namespace shardway::link
