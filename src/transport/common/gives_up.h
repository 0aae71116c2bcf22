// A transport whose other ranks can be told that a call of this rank failed.
#pragma once

#include <string>

namespace shardway {

class GivesUp {
 public:
  virtual ~GivesUp() = default;

  // Ends the group: who waits for this rank raises.
  virtual void give_up(const std::string& why) = 0;
};

}  // namespace shardway
