// The sockets of links. A child of fork closes them: held open there, they would hide its parent's death.
#pragma once

#include "shm/memory/file.h"

namespace shardway::link {

class LinkSocket {
 public:
  LinkSocket() = default;
  explicit LinkSocket(shm::File file);
  LinkSocket(LinkSocket&& other) noexcept = default;
  LinkSocket& operator=(LinkSocket&& other) noexcept = default;
  ~LinkSocket() { close(); }

  int get() const { return file_.get(); }
  explicit operator bool() const { return static_cast<bool>(file_); }
  void close();

 private:
  shm::File file_;
};

}  // namespace shardway::link
