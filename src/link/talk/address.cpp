#include "link/talk/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace shardway::link {
namespace {

constexpr int64_t kLargestPort = 65535;
constexpr int kWaitingConnections = 512;

struct TcpOption {
  int name;
  int value;
};

constexpr TcpOption kTcpOptions[] = {
    {TCP_NODELAY, 1}, {TCP_KEEPIDLE, 10}, {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 3}, {TCP_USER_TIMEOUT, 25'000}};

using FoundAddresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

[[noreturn]] void raise_refusal(int number) { throw std::system_error(number, std::generic_category()); }

FoundAddresses look_up(const LinkAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failed != 0)
    throw std::system_error(ENXIO, std::generic_category(), address.host + ": " + gai_strerror(failed));
  return {found, &freeaddrinfo};
}

// The kernel can connect a free port to itself.
bool is_own_echo(const shm::File& socket) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_bytes = sizeof(own);
  socklen_t other_bytes = sizeof(other);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0) return false;
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &other_bytes) != 0) return false;
  const auto* begin = reinterpret_cast<const char*>(&own);
  return own_bytes == other_bytes &&
         std::equal(begin, begin + own_bytes, reinterpret_cast<const char*>(&other));
}

shm::File dial_one(const addrinfo& where, Instant deadline) {
  shm::File made(socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) raise_refusal(errno);
  if (::connect(made.get(), where.ai_addr, where.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) raise_refusal(errno);
    if (!is_ready_before(made.get(), POLLOUT, deadline)) raise_refusal(ETIMEDOUT);
    int failed = 0;
    socklen_t bytes = sizeof(failed);
    getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &failed, &bytes);
    if (failed != 0) raise_refusal(failed);
  }
  if (is_own_echo(made)) raise_refusal(ECONNREFUSED);
  tune(made.get());
  return made;
}

// The host, and what stands after its colon.
struct HostAndPort {
  std::string host;
  std::string port;
};

HostAndPort split_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {};
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, text.substr(colon + 1)};
}

}  // namespace

void tune(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  for (const TcpOption& option : kTcpOptions)
    setsockopt(socket, IPPROTO_TCP, option.name, &option.value, sizeof(option.value));
}

bool is_ready_before(int socket, short events, Instant deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Instant::clock::now());
    const int64_t limit_ms = std::clamp<int64_t>(left.count(), 0, 60'000);
    pollfd watched{.fd = socket, .events = events, .revents = 0};
    const int found = poll(&watched, 1, static_cast<int>(limit_ms));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) raise_refusal(errno);
    if (limit_ms == 0) return false;
  }
}

LinkAddress LinkAddress::read(const std::string& text) {
  std::string rest = text.starts_with("tcp://") ? text.substr(6) : text;
  if (rest.ends_with('/')) rest.pop_back();
  const auto [host, port] = split_of(rest);
  int64_t number = 0;
  const char* end = port.data() + port.size();
  const auto read = std::from_chars(port.data(), end, number);
  const bool is_port = read.ec == std::errc() && read.ptr == end && number > 0 && number <= kLargestPort;
  if (host.empty() || host.find('/') != std::string::npos || !is_port)
    throw std::invalid_argument("address='" + text + "' is not like tcp://127.0.0.1:29700");
  return {.host = host, .port = number};
}

shm::File LinkAddress::dial(Instant deadline) const {
  const FoundAddresses found = look_up(*this);
  for (const addrinfo* where = found.get(); true; where = where->ai_next) {
    try {
      return dial_one(*where, deadline);
    } catch (const std::system_error&) {
      if (where->ai_next == nullptr) throw;
    }
  }
}

shm::File LinkAddress::listen() const {
  const FoundAddresses found = look_up(*this);
  shm::File made(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) raise_refusal(errno);
  const int on = 1;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (found->ai_family == AF_INET6) setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (bind(made.get(), found->ai_addr, found->ai_addrlen) != 0) raise_refusal(errno);
  if (::listen(made.get(), kWaitingConnections) != 0) raise_refusal(errno);
  return made;
}

std::string to_string(const LinkAddress& address) {
  const bool has_colon = address.host.find(':') != std::string::npos;
  return "tcp://" + (has_colon ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

}  // namespace shardway::link
