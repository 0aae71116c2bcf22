// The process that holds a link: a thread that admits members, and hands their questions to the registry.
#pragma once

#include <memory>
#include <string>

#include "shm/memory/file.h"

namespace shardway::link {

class HubServer;
struct Claim;

class [[gnu::visibility("default")]] LinkHub {
 public:
  // Serves those who connect to `listener`, until it is closed. `holder` is this process.
  LinkHub(shm::File listener, const std::string& secret, const Claim& holder);

  // For a program in another language, whose claim comes as it travels, in JSON. Throws NotOurs if it is
  // invalid.
  LinkHub(shm::File listener, const std::string& secret, const std::string& holder);

  // Without a word to the members, as if this process had died.
  ~LinkHub();
  LinkHub(const LinkHub&) = delete;
  LinkHub& operator=(const LinkHub&) = delete;

  // Leaves the link. What was answered already still arrives.
  void close();

 private:
  std::unique_ptr<HubServer> server_;
  int process_;  // a child of fork has no such thread
};

}  // namespace shardway::link
