// The connections of a hub, served by one thread.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "link/hub/registry.h"
#include "link/talk/address.h"
#include "link/talk/open_sockets.h"
#include "link/talk/wire.h"

namespace shardway::link {

// A connection; a member once it has shown that it knows the secret.
struct HubPeer {
  uint64_t number = 0;
  LinkSocket socket;
  std::string where;  // its host
  std::string nonce;
  Instant since;
  Inbox inbox = {};
  std::string outbox = {};
  SharedMember member = nullptr;
  std::shared_ptr<MeetingVisitor> visitor = nullptr;  // of the place where a joint group meets
  bool is_refused = false;
  bool is_flushing = false;  // epoll tells when it can be written to

  bool is_stranger() const { return member == nullptr && visitor == nullptr; }
};

class HubServer {
 public:
  HubServer(shm::File listener, std::string secret, const Claim& holder);
  ~HubServer() { stop(); }
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  // Ends the thread.
  void stop();

  // Afterwards, if the hub leaves in peace.
  void say_farewell();

 private:
  using SharedPeer = std::shared_ptr<HubPeer>;

  void run();
  void answer(const epoll_event& event);
  void accept();
  void drop_slow_strangers();
  bool is_here(const HubPeer& peer) const { return peers_.contains(peer.number); }
  void serve(const SharedPeer& peer, uint32_t events);
  void read_some(const SharedPeer& peer);
  void hear(const SharedPeer& peer, const Json& message);
  void admit(const SharedPeer& peer, const Json& message);
  void enter(const SharedPeer& peer, const Claim& claim, const Json& meeting);
  void refuse(const SharedPeer& peer, const std::string& why, bool is_final);
  void send(const SharedPeer& peer, const Json& message);
  void flush(HubPeer& peer);
  void watch(const HubPeer& peer, int change) const;
  void drop(const SharedPeer& peer, const std::string& why);
  void send_last_words(HubPeer& peer);
  void await_their_end();

  std::string secret_;
  Claim holder_;
  LinkRegistry registry_;
  LinkSocket listener_;
  shm::File events_;  // of epoll
  shm::File bell_;    // ends a wait
  std::map<uint64_t, SharedPeer> peers_;
  uint64_t next_number_ = 1;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace shardway::link
