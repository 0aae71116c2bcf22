#include "shm/meeting.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "shm/abstract_socket.h"
#include "shm/errors.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kGreeting = 0x7368617264776179;  // "shardway"
constexpr auto kShortPatience = 5s;                 // for what a guest sends at once
constexpr int64_t kMostBytes = int64_t{1} << 30;

struct Hello {
  uint64_t greeting = kGreeting;
  int64_t rank = 0;
  int64_t size = 0;
};

struct Head {
  int64_t bytes = 0;
  int64_t is_disagreement = 0;  // then the bytes are text
};

// The number of this meeting in this process: a second join of all ranks is another meeting.
int64_t next_meeting() {
  static std::atomic<int64_t> count = 0;
  return count.fetch_add(1);
}

// Names of sockets are short, and those of jobs may not be.
std::string socket_name(const Job& job, int64_t meeting) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : job.name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return "shardway-job-" + std::to_string(geteuid()) + "-" + std::to_string(hash) + "-" +
         std::to_string(meeting);
}

File listener_at(const std::string& name, const Job& job) {
  try {
    return listen_at(name);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    throw std::invalid_argument("join: another process is rank 0 of this job (" + job.launcher + ")");
  }
}

void await(const File& connection, int16_t event, Clock::time_point deadline, int64_t peer) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd ready{.fd = connection.get(), .events = event, .revents = 0};
  const int limit = static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
  const int found = poll(&ready, 1, limit);
  if (found == 0) throw PeerLost(peer, "it did not come in time");
  if (found < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
}

void send_all(const File& connection, std::span<const std::byte> data, Clock::time_point deadline,
              int64_t peer) {
  while (!data.empty()) {
    await(connection, POLLOUT, deadline, peer);
    const ssize_t sent = send(connection.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) throw PeerLost(peer, "it ended before all ranks had joined");
    data = data.subspan(static_cast<size_t>(sent));
  }
}

void receive_all(const File& connection, std::span<std::byte> data, Clock::time_point deadline,
                 int64_t peer) {
  while (!data.empty()) {
    await(connection, POLLIN, deadline, peer);
    const ssize_t got = recv(connection.get(), data.data(), data.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) throw PeerLost(peer, "it ended before all ranks had joined");
    data = data.subspan(static_cast<size_t>(got));
  }
}

template <class T>
void send_value(const File& to, const T& value, Clock::time_point deadline, int64_t peer) {
  send_all(to, std::as_bytes(std::span(&value, 1)), deadline, peer);
}

template <class T>
T receive_value(const File& from, Clock::time_point deadline, int64_t peer) {
  T value;
  receive_all(from, std::as_writable_bytes(std::span(&value, 1)), deadline, peer);
  return value;
}

std::vector<std::byte> receive_block(const File& from, int64_t bytes, Clock::time_point deadline,
                                     int64_t peer) {
  if (bytes < 0 || bytes > kMostBytes) throw PeerLost(peer, "it speaks another language");
  std::vector<std::byte> block(static_cast<size_t>(bytes));
  receive_all(from, block, deadline, peer);
  return block;
}

}  // namespace

Meeting::Meeting(const Job& job, std::chrono::milliseconds timeout)
    : job_(job), deadline_(Clock::now() + timeout) {
  const std::string name = socket_name(job_, next_meeting());
  if (job_.rank != 0) {
    find_host(name);
  } else {
    receive_guests(name);
  }
}

// Whoever is of this user and greets is counted, so that all hear of a disagreement.
void Meeting::receive_guests(const std::string& name) {
  const File listener = listener_at(name, job_);
  guests_.resize(static_cast<size_t>(job_.size));
  for (int64_t seen = 1; seen < job_.size;) {
    const auto missing = std::find_if(guests_.begin() + 1, guests_.end(), [](const File& f) { return !f; });
    await(listener, POLLIN, deadline_, missing - guests_.begin());
    File guest(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!guest) continue;
    Hello hello;
    try {
      checked_peer(guest);
      hello = receive_value<Hello>(guest, Clock::now() + kShortPatience, 0);
    } catch (const std::runtime_error&) {
      continue;
    }
    if (hello.greeting != kGreeting) continue;
    ++seen;
    const std::string rank = "rank " + std::to_string(hello.rank);
    if (hello.size != job_.size)
      disagreement_ = "join: ranks disagree on the number of ranks: " + std::to_string(job_.size) +
                      " on rank 0, " + std::to_string(hello.size) + " on " + rank;
    const bool is_known = hello.rank > 0 && hello.rank < job_.size;
    const auto place = is_known ? guests_.begin() + hello.rank : missing;
    if (disagreement_.empty() && (!is_known || *place)) disagreement_ = "join: two processes are " + rank;
    *(*place ? missing : place) = std::move(guest);
  }
}

void Meeting::find_host(const std::string& name) {
  for (auto pause = 1ms;; pause = std::min(2 * pause, 50ms)) {
    try {
      host_ = connect_to(name, kShortPatience);
      break;
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::connection_refused) throw;
    }
    if (Clock::now() > deadline_)
      throw PeerLost(0, "no such rank of this job joined on this host (" + job_.launcher + ")");
    std::this_thread::sleep_for(pause);
  }
  checked_peer(host_);
  send_value(host_, Hello{.rank = job_.rank, .size = job_.size}, deadline_, 0);
}

std::vector<std::byte> Meeting::exchange(std::span<const std::byte> mine) {
  return job_.rank == 0 ? exchange_as_host(mine) : exchange_as_guest(mine);
}

std::vector<std::byte> Meeting::exchange_as_host(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.begin(), mine.end());
  for (size_t rank = 1; rank < guests_.size(); ++rank) {
    const auto peer = static_cast<int64_t>(rank);
    const Head head = receive_value<Head>(guests_[rank], deadline_, peer);
    const auto block = receive_block(guests_[rank], head.bytes, deadline_, peer);
    if (block.size() != mine.size() && disagreement_.empty())
      disagreement_ = "join: rank " + std::to_string(peer) + " has another version of shardway";
    all.insert(all.end(), block.begin(), block.end());
  }
  const bool is_agreed = disagreement_.empty();
  const auto answer = is_agreed ? std::span<const std::byte>(all) : std::as_bytes(std::span(disagreement_));
  for (size_t rank = 1; rank < guests_.size(); ++rank) {
    const auto peer = static_cast<int64_t>(rank);
    send_value(guests_[rank],
               Head{.bytes = static_cast<int64_t>(answer.size()), .is_disagreement = is_agreed ? 0 : 1},
               deadline_, peer);
    send_all(guests_[rank], answer, deadline_, peer);
  }
  if (!is_agreed) throw std::invalid_argument(disagreement_);
  return all;
}

std::vector<std::byte> Meeting::exchange_as_guest(std::span<const std::byte> mine) {
  send_value(host_, Head{.bytes = static_cast<int64_t>(mine.size())}, deadline_, 0);
  send_all(host_, mine, deadline_, 0);
  const Head head = receive_value<Head>(host_, deadline_, 0);
  std::vector<std::byte> answer = receive_block(host_, head.bytes, deadline_, 0);
  if (head.is_disagreement == 0) return answer;
  const auto* text = reinterpret_cast<const char*>(answer.data());
  throw std::invalid_argument(std::string(text, answer.size()));
}

}  // namespace shardway::shm
