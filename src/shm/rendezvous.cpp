#include "shm/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "shm/abstract_socket.h"
#include "shm/process.h"

namespace shardway::shm {
namespace {

[[noreturn]] void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string socket_name(uint64_t doorway) {
  std::array<char, 32> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "shardway-%016llx", static_cast<unsigned long long>(doorway));
  return {text.data(), static_cast<size_t>(length)};
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
      listener_(listen_at(socket_name(name_))),
      process_(handle_of_process()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) raise_error("eventfd");
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
  const File connection = connect_to(socket_name(name), patience);
  const ucred peer = checked_peer(connection);
  std::array<File, kFiles> files = receive_files(connection);
  return Peer::remember(std::make_shared<Peer>(files[0], std::move(files[1]), peer.pid, expected));
}

}  // namespace shardway::shm
