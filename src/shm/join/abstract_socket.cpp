#include "shm/join/abstract_socket.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <stdexcept>

#include "shm/memory/raise_error.h"

namespace shardway::shm {
namespace {

constexpr int kBacklog = 1024;

struct Address {
  sockaddr_un socket{};
  socklen_t bytes = 0;
};

// The first byte of the path is zero, which makes the name an abstract one that lives in the kernel.
Address address_of(const std::string& name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address.socket.sun_path) - 1);
  std::copy_n(name.begin(), length, &address.socket.sun_path[1]);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

File fresh_socket() {
  File made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) raise_error("socket");
  return made;
}

}  // namespace

File listen_at(const std::string& name) {
  File listener = fresh_socket();
  const Address address = address_of(name);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.bytes) != 0)
    raise_error("bind of an abstract socket");
  if (listen(listener.get(), kBacklog) != 0) raise_error("listen");
  return listener;
}

File connect_to(const std::string& name, std::chrono::milliseconds patience) {
  File connection = fresh_socket();
  const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // limits connect as well
  const Address address = address_of(name);
  int failed = 0;
  do {
    failed = connect(connection.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.bytes);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) raise_error("no process of this host answers at the socket");
  return connection;
}

ucred checked_peer(const File& connection) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) raise_error("SO_PEERCRED");
  if (peer.uid != geteuid())
    throw std::runtime_error("the process at the other end belongs to user " + std::to_string(peer.uid));
  return peer;
}

}  // namespace shardway::shm
