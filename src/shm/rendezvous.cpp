#include "shm/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace shardway::shm {
namespace {

constexpr int kBacklog = 1024;

[[noreturn]] void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct Address {
  sockaddr_un socket{};
  socklen_t bytes = 0;
};

// The first byte is zero: a name that lives in the kernel, and ends with its socket.
Address address_of(uint64_t name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  const int length = std::snprintf(&address.socket.sun_path[1], sizeof(address.socket.sun_path) - 1,
                                   "shardway-%016llx", static_cast<unsigned long long>(name));
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  return address;
}

// Who is at the other end, by the kernel's word; the pid is 0 when it is not in our namespace.
ucred checked_peer(const File& connection) {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) raise_error("SO_PEERCRED");
  if (peer.uid != geteuid())
    throw std::runtime_error("the process at the other end belongs to user " + std::to_string(peer.uid));
  return peer;
}

constexpr size_t kFiles = 2;  // the arena, the process handle

bool send_files(const File& connection, const std::array<int, kFiles>& files) {
  char byte = 'a';
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(files))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(files));
  std::memcpy(CMSG_DATA(rights), files.data(), sizeof(files));
  return sendmsg(connection.get(), &message, MSG_NOSIGNAL) == 1;
}

std::array<File, kFiles> receive_files(const File& connection) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFiles)> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC) != 1) raise_error("no answer at the socket");
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS ||
      rights->cmsg_len != CMSG_LEN(sizeof(int) * kFiles))
    throw std::runtime_error("the answer at the socket holds no files");
  std::array<int, kFiles> files{};
  std::memcpy(files.data(), CMSG_DATA(rights), sizeof(files));
  return {File(files[0]), File(files[1])};
}

}  // namespace

Doorway::Doorway(const Arena& arena)
    : arena_(arena),
      name_(random_nonce()[0]),
      listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      process_(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!listener_ || !stop_) raise_error("socket");
  if (!process_) raise_error("pidfd_open");
  const Address address = address_of(name_);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.bytes) != 0)
    raise_error("bind of an abstract socket");
  if (listen(listener_.get(), kBacklog) != 0) raise_error("listen");
  thread_ = std::thread([this] { serve(); });
}

Doorway::~Doorway() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void Doorway::serve() {
  for (;;) {
    std::array<pollfd, 2> ready{pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    if (ready[0].revents == 0) continue;
    const File connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) continue;
    try {
      checked_peer(connection);
      send_files(connection, {arena_.fd(), process_.get()});
    } catch (const std::exception&) {  // a stranger: it is told nothing
    }
  }
}

std::shared_ptr<Peer> call_at(uint64_t name, const Nonce& expected, std::chrono::milliseconds patience) {
  const File connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!connection) raise_error("socket");
  const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  setsockopt(connection.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // of connect as well
  const Address address = address_of(name);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.bytes) != 0)
    raise_error("no process of this host answers at the socket");
  const ucred peer = checked_peer(connection);
  std::array<File, kFiles> files = receive_files(connection);
  return Peer::remember(std::make_shared<Peer>(files[0], std::move(files[1]), peer.pid, expected));
}

}  // namespace shardway::shm
