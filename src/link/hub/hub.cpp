#include "link/hub/hub.h"

#include <unistd.h>

#include "link/hub/server.h"

namespace shardway::link {

LinkHub::LinkHub(shm::File listener, const std::string& secret, const Claim& holder)
    : server_(std::make_unique<HubServer>(std::move(listener), secret, holder)), process_(getpid()) {}

LinkHub::LinkHub(shm::File listener, const std::string& secret, const std::string& holder)
    : LinkHub(std::move(listener), secret, Claim::read(parse_json(holder, "a claim"))) {}

LinkHub::~LinkHub() {
  if (getpid() != process_) (void)server_.release();
}

void LinkHub::close() {
  if (server_ == nullptr || getpid() != process_) return;
  server_->stop();
  server_->say_farewell();
  server_ = nullptr;
}

}  // namespace shardway::link
