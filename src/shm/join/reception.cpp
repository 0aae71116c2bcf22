#include "shm/join/reception.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "shm/join/abstract_socket.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;

constexpr auto kGreetingPatience = 1s;
constexpr auto kPause = 10ms;  // until there may be file descriptors again
constexpr size_t kMostCallers = 256;

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// Returns whether more may come later; `bytes` is how many came now.
bool read_more(const File& from, std::span<std::byte> to, size_t& bytes) {
  const ssize_t got = recv(from.get(), to.data(), to.size(), MSG_DONTWAIT);
  bytes = got > 0 ? static_cast<size_t>(got) : 0;
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

Reception::Reception(File listener, const JobDigest& job) : listener_(std::move(listener)), job_(job) {
  fcntl(listener_.get(), F_SETFL, O_NONBLOCK);
}

std::optional<Guest> Reception::next(Clock::time_point until) {
  for (;;) {
    let_in();
    if (auto guest = find_greeting()) return guest;
    const auto now = Clock::now();
    std::erase_if(callers_, [&](const Caller& caller) { return caller.deadline <= now; });
    if (now >= until) break;
    wait(until);
  }
  if (shortage_ != 0) throw std::system_error(shortage_, std::generic_category(), "join: accept");
  return std::nullopt;
}

void Reception::let_in() {
  for (;;) {
    File connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && !is_shortage(errno))
        throw std::system_error(errno, std::generic_category(), "join: accept");
      shortage_ = is_shortage(errno) ? errno : 0;
      return;
    }
    try {
      checked_peer(connection);
    } catch (const std::runtime_error&) {  // another user's
      continue;
    }
    if (callers_.size() == kMostCallers) callers_.pop_front();
    callers_.push_back({.connection = std::move(connection),
                        .bytes = {},
                        .got = 0,
                        .deadline = Clock::now() + kGreetingPatience});
  }
}

std::optional<Guest> Reception::find_greeting() {
  for (auto caller = callers_.begin(); caller != callers_.end();) {
    size_t bytes = 0;
    const bool is_there = read_more(caller->connection, std::span(caller->bytes).subspan(caller->got), bytes);
    caller->got += bytes;
    if (is_there && caller->got < kGreetingBytes) {
      ++caller;
      continue;
    }
    const auto greeting = is_there ? greeting_of(caller->bytes) : std::nullopt;
    File connection = std::move(caller->connection);
    caller = callers_.erase(caller);
    if (greeting && greeting->job == job_)
      return Guest{.connection = std::move(connection), .greeting = *greeting};
  }
  return std::nullopt;
}

// Waits until something may have changed, or a signal comes.
void Reception::wait(Clock::time_point until) const {
  std::vector<pollfd> files;
  for (const Caller& caller : callers_) {
    files.push_back({.fd = caller.connection.get(), .events = POLLIN, .revents = 0});
    until = std::min(until, caller.deadline);
  }
  if (shortage_ != 0) {
    until = std::min(until, Clock::now() + kPause);  // the listener would only say again that somebody waits
  } else {
    files.push_back({.fd = listener_.get(), .events = POLLIN, .revents = 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  const int limit = static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
  if (poll(files.data(), files.size(), limit) < 0 && errno != EINTR)
    throw std::system_error(errno, std::generic_category(), "join: poll");
}

}  // namespace shardway::shm
