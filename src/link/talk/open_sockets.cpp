#include "link/talk/open_sockets.h"

#include <fcntl.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "shm/memory/fork_mutex.h"

namespace shardway::link {
namespace {

struct OpenSockets {
  shm::ForkMutex mutex;
  std::vector<int> all;

  static OpenSockets& instance() {
    static auto* sockets = new OpenSockets;  // never destroyed: a hub may run until the process ends
    return *sockets;
  }
};

// Their numbers stay in use, so that those who hold one here may close it.
void close_in_child() {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int socket : OpenSockets::instance().all) dup3(nothing, socket, O_CLOEXEC);
  if (nothing >= 0) close(nothing);
}

void remember(int socket) {
  static const int handler = pthread_atfork(nullptr, nullptr, &close_in_child);
  (void)handler;
  OpenSockets& sockets = OpenSockets::instance();
  const std::lock_guard lock(sockets.mutex);
  sockets.all.push_back(socket);
}

void forget(int socket) {
  OpenSockets& sockets = OpenSockets::instance();
  const std::lock_guard lock(sockets.mutex);
  std::erase(sockets.all, socket);
}

[[maybe_unused]] const OpenSockets& sockets_at_load = OpenSockets::instance();

}  // namespace

LinkSocket::LinkSocket(shm::File file) : file_(std::move(file)) {
  if (file_) remember(file_.get());
}

void LinkSocket::close() {
  if (!file_) return;
  forget(file_.get());
  file_ = shm::File();
}

}  // namespace shardway::link
