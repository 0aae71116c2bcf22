#include "shm/join/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <system_error>

#include "shm/join/abstract_socket.h"
#include "shm/memory/raise_error.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMostFiles = 3;  // see Handed

// A rank says its secret at once; whoever does not is no rank.
constexpr auto kVisitorPatience = 1s;
constexpr size_t kMostVisitors = 256;
constexpr auto kPauseWithoutFiles = 10ms;  // before the next try of a process that has too many open files

std::string socket_name(uint64_t doorway) {
  std::array<char, 32> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "shardway-%016llx", static_cast<unsigned long long>(doorway));
  return {text.data(), static_cast<size_t>(length)};
}

// A message of one byte with room for files.
struct FileMessage {
  char byte = 'a';
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostFiles)> control{};
  msghdr message{};

  explicit FileMessage(size_t files) {
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * files);
  }
};

void send_files(const File& connection, const std::vector<int>& files) {
  FileMessage out(files.size());
  cmsghdr* rights = CMSG_FIRSTHDR(&out.message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * files.size());
  std::memcpy(CMSG_DATA(rights), files.data(), sizeof(int) * files.size());
  // If it fails, the caller sees that the connection closes, and tries again.
  while (sendmsg(connection.get(), &out.message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::vector<File> receive_files(const File& connection) {
  FileMessage in(kMostFiles);
  ssize_t got = 0;
  do {
    got = recvmsg(connection.get(), &in.message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) raise_error("no answer at the socket");
  std::vector<File> files;
  const cmsghdr* rights = CMSG_FIRSTHDR(&in.message);
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS) {
    for (size_t i = 0; CMSG_LEN(sizeof(int) * (i + 1)) <= rights->cmsg_len; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
      files.emplace_back(fd);
    }
  }
  if ((in.message.msg_flags & MSG_CTRUNC) != 0)
    throw std::runtime_error("the files of the answer do not fit: too many are open in this process");
  if (files.size() < 2) throw std::runtime_error("the answer at the socket holds no files");
  return files;
}

// Takes the same time however much of the secret is right.
bool is_same(const std::array<std::byte, sizeof(Nonce)>& said, const Nonce& secret) {
  const auto wanted = std::as_bytes(std::span(secret));
  std::byte difference{};
  for (size_t i = 0; i < said.size(); ++i) difference |= said[i] ^ wanted[i];
  return difference == std::byte{};
}

}  // namespace

Doorway::Doorway(std::vector<int> files)
    : files_(std::move(files)),
      name_(random_nonce()[0]),
      secret_(random_nonce()),
      listener_(listen_at(socket_name(name_))),
      stop_(eventfd(0, EFD_CLOEXEC)),
      spare_(eventfd(0, EFD_CLOEXEC)) {
  if (!stop_ || !spare_) raise_error("eventfd");
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    throw std::runtime_error(std::string("no thread could be started to meet the others: ") + error.what());
  }
}

Doorway::~Doorway() {
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void Doorway::serve() {
  bool can_receive = true;
  for (;;) {
    std::vector<pollfd> ready;
    ready.push_back({.fd = stop_.get(), .events = POLLIN, .revents = 0});
    ready.push_back({.fd = can_receive ? listener_.get() : -1, .events = POLLIN, .revents = 0});
    for (const Visitor& visitor : visitors_)
      ready.push_back({.fd = visitor.connection.get(), .events = POLLIN, .revents = 0});
    const auto limit = can_receive ? std::chrono::milliseconds(kVisitorPatience) / 4 : kPauseWithoutFiles;
    const bool is_idle = can_receive && visitors_.empty();
    if (poll(ready.data(), ready.size(), is_idle ? -1 : static_cast<int>(limit.count())) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (ready[0].revents != 0) return;
    std::erase_if(visitors_, [this](Visitor& visitor) { return is_done_with(visitor); });
    if (!spare_) spare_ = File(eventfd(0, EFD_CLOEXEC));
    can_receive = ready[1].revents == 0 || receive();
  }
}

// Returns false if this process has no room for another file just now.
bool Doorway::receive() {
  File connection = accepted();
  if (!connection) return errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS;
  if (visitors_.size() >= kMostVisitors) visitors_.erase(visitors_.begin());
  visitors_.push_back({.connection = std::move(connection), .until = Clock::now() + kVisitorPatience});
  return true;
}

File Doorway::accepted() {
  File connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection || errno != EMFILE || !spare_) return connection;
  spare_ = File();
  return File(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

bool Doorway::is_done_with(Visitor& visitor) {
  const ssize_t got = recv(visitor.connection.get(), visitor.said.data() + visitor.count,
                           visitor.said.size() - visitor.count, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Clock::now() > visitor.until;
  if (got <= 0) return true;
  visitor.count += static_cast<size_t>(got);
  if (visitor.count < visitor.said.size()) return Clock::now() > visitor.until;
  try {
    checked_peer(visitor.connection);
    if (is_same(visitor.said, secret_)) send_files(visitor.connection, files_);
  } catch (const std::exception&) {  // a stranger: it is told nothing
  }
  return true;
}

Handed call_at(uint64_t name, const Nonce& secret, std::chrono::milliseconds patience) {
  const File connection = connect_to(socket_name(name), patience);
  checked_peer(connection);
  if (send(connection.get(), secret.data(), sizeof(secret), MSG_NOSIGNAL) != sizeof(secret))
    raise_error("the socket takes no greeting");
  std::vector<File> files = receive_files(connection);
  Handed handed{.arena = std::move(files[0]), .process = std::move(files[1]), .memory = {}};
  if (files.size() > 2) handed.memory = std::move(files[2]);
  return handed;
}

}  // namespace shardway::shm
