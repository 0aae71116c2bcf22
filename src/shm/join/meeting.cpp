#include "shm/join/meeting.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "shm/join/abstract_socket.h"
#include "shm/join/reception.h"
#include "shm/memory/errors.h"
#include "shm/memory/fork_mutex.h"

namespace shardway::shm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kShortPatience = 1s;  // for a connection to a socket of this host
constexpr int64_t kMostText = 1 << 12;

// Without an id, two jobs can be told apart only by a rank number that comes twice. So a meeting stays open
// for this long after all have come.
constexpr auto kSecondLook = 500ms;

// It stays open for this long after ranks disagree, so that those who are about to come hear of it.
constexpr auto kAftermath = 1s;

struct Head {
  int64_t bytes = 0;
  int64_t is_disagreement = 0;  // then the bytes are text
};

// The number of this meeting in this process: a second join of all ranks is another meeting.
int64_t next_meeting() {
  static std::atomic<int64_t> count = 0;  // relaxed: a number for each, and nothing else
  return count.fetch_add(1, std::memory_order_relaxed);
}

// The name holds a digest: names of sockets are short, and names of jobs may be long.
std::string socket_name(const Job& job, int64_t meeting) {
  const JobDigest digest = digest_of(job.name);
  return "shardway-job-" + std::to_string(geteuid()) + "-" + std::to_string(digest[0]) + "-" +
         std::to_string(digest[1]) + "-" + std::to_string(meeting);
}

std::string advice_of(const Job& job) {
  return " (" + job.launcher + "): give each of two jobs that run at once a name of its own in SHARDWAY_JOB";
}

std::optional<File> connection_to(const std::string& name) {
  try {
    return connect_to(name, kShortPatience);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::connection_refused) return std::nullopt;
    // A full backlog, or a signal: somebody is there.
    if (error.code() == std::errc::resource_unavailable_try_again) return File();
    if (error.code() == std::errc::interrupted) return File();
    throw;
  }
}

std::optional<File> listener_at(const std::string& name) {
  try {
    return listen_at(name);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    return std::nullopt;
  }
}

// A socket of this name shows that a meeting is over, until its host's process ends another meeting. So a
// rank that comes late need not wait.
std::string name_when_over(const std::string& name) { return name + "-over"; }

struct LastSign {
  ForkMutex mutex;
  File sign;

  static LastSign& instance() {
    static auto* last = new LastSign;  // never destroyed: the sign stays until the end of the process
    return *last;
  }
};

[[maybe_unused]] const LastSign& sign_at_load = LastSign::instance();

void show_that_it_is_over(const std::string& name) {
  LastSign& last = LastSign::instance();
  const std::lock_guard lock(last.mutex);
  if (auto mark = listener_at(name_when_over(name))) last.sign = std::move(*mark);
}

bool is_over(const std::string& name) { return connection_to(name_when_over(name)).has_value(); }

void await(const File& connection, int16_t event, Clock::time_point deadline, int64_t peer) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = connection.get(), .events = event, .revents = 0};
    const int found = poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000)));
    if (found > 0) return;
    if (found == 0) throw PeerLost(peer, "it did not answer in time");
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "poll");
  }
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

void send_block(const File& to, std::span<const std::byte> block, bool is_disagreement,
                Clock::time_point deadline, int64_t peer) {
  const Head head{.bytes = static_cast<int64_t>(block.size()), .is_disagreement = is_disagreement ? 1 : 0};
  send_all(to, std::as_bytes(std::span(&head, 1)), deadline, peer);
  send_all(to, block, deadline, peer);
}

Head receive_head(const File& from, Clock::time_point deadline, int64_t peer) {
  Head head;
  receive_all(from, std::as_writable_bytes(std::span(&head, 1)), deadline, peer);
  return head;
}

// Returns a block of this length from rank 0. If rank 0 reports a disagreement, throws its text as
// std::invalid_argument.
std::vector<std::byte> receive_answer(const File& host, size_t bytes, Clock::time_point deadline) {
  const Head head = receive_head(host, deadline, 0);
  const bool is_text = head.is_disagreement != 0 && head.bytes >= 0 && head.bytes <= kMostText;
  if (!is_text && (head.is_disagreement != 0 || head.bytes != static_cast<int64_t>(bytes)))
    throw std::invalid_argument("join: rank 0 has another version of shardway");
  std::vector<std::byte> answer(static_cast<size_t>(head.bytes));
  receive_all(host, answer, deadline, 0);
  if (!is_text) return answer;
  throw std::invalid_argument(std::string(reinterpret_cast<const char*>(answer.data()), answer.size()));
}

}  // namespace

Meeting::Meeting(const Job& job, std::chrono::milliseconds timeout)
    : job_(job), deadline_(Clock::now() + timeout), name_(socket_name(job, next_meeting())) {
  if (job_.rank != 0) {
    be_guest();
    return;
  }
  while (!is_over(name_)) {
    if (auto listener = listener_at(name_)) {
      be_host(std::move(*listener));
      return;
    }
    try {
      be_guest();  // of another rank 0: all that have come to it hear that there are two
    } catch (const PeerLost&) {
      if (Clock::now() > deadline_) throw;
    }
  }
  throw std::invalid_argument("join: another process is rank 0 of this job, and its ranks have met" +
                              advice_of(job_));
}

void Meeting::be_host(File listener) {
  Reception reception(std::move(listener), digest_of(job_.name));
  guests_.resize(static_cast<size_t>(job_.size));
  std::optional<Clock::time_point> closes;
  for (;;) {
    const auto missing = std::find_if(guests_.begin() + 1, guests_.end(), [](const File& f) { return !f; });
    const bool is_agreed = disagreement_.empty();
    if (!closes && missing == guests_.end() && is_agreed)
      closes = Clock::now() + (job_.has_id ? 0ms : kSecondLook);
    std::optional<Guest> guest = reception.next(std::min(closes.value_or(deadline_), deadline_));
    if (!guest && !closes) throw PeerLost(missing - guests_.begin(), "it did not answer in time");
    if (!guest) break;
    take(std::move(*guest));
    if (is_agreed && !disagreement_.empty()) closes = Clock::now() + kAftermath;
  }
  show_that_it_is_over(name_);
  welcome();
}

void Meeting::take(Guest guest) {
  const int64_t rank = guest.greeting.rank;
  if (!disagreement_.empty()) {  // the first one is what all hear
  } else if (guest.greeting.size != job_.size) {
    disagreement_ = "join: ranks disagree on the number of ranks: " + std::to_string(job_.size) +
                    " on rank 0, " + std::to_string(guest.greeting.size) + " on rank " + std::to_string(rank);
  } else if (rank == 0 || guests_[static_cast<size_t>(rank)]) {
    disagreement_ = "join: two processes are rank " + std::to_string(rank) + advice_of(job_);
  }
  if (disagreement_.empty()) {
    guests_[static_cast<size_t>(rank)] = std::move(guest.connection);
  } else {
    guests_.push_back(std::move(guest.connection));
  }
}

// Tells the guests that all have come, or that the ranks disagree.
void Meeting::welcome() {
  const bool is_agreed = disagreement_.empty();
  for (size_t rank = 1; rank < guests_.size(); ++rank) {
    if (!guests_[rank]) continue;
    try {
      send_block(guests_[rank], std::as_bytes(std::span(disagreement_)), !is_agreed, deadline_,
                 static_cast<int64_t>(rank));
    } catch (const PeerLost&) {
      if (is_agreed) throw;
    }
  }
  if (!is_agreed) throw std::invalid_argument(disagreement_);
}

void Meeting::be_guest() {
  try {
    find_host();
    checked_peer(host_);
    send_all(host_, bytes_of({.job = digest_of(job_.name), .rank = job_.rank, .size = job_.size}), deadline_,
             0);
    receive_answer(host_, 0, deadline_);
  } catch (const PeerLost&) {
    if (!is_over(name_)) throw;
    throw std::invalid_argument("join: the ranks of this job have met, and this process, rank " +
                                std::to_string(job_.rank) + ", was not among them" + advice_of(job_));
  }
}

void Meeting::find_host() {
  for (auto pause = 1ms;; pause = std::min(2 * pause, 50ms)) {
    if (auto connection = connection_to(name_); connection && *connection) {
      host_ = std::move(*connection);
      return;
    }
    if (Clock::now() > deadline_ || is_over(name_))
      throw PeerLost(0, "no such rank of this job joined on this host (" + job_.launcher + ")");
    std::this_thread::sleep_for(pause);
  }
}

std::vector<std::byte> Meeting::exchange(std::span<const std::byte> mine) {
  return job_.rank == 0 ? exchange_as_host(mine) : exchange_as_guest(mine);
}

std::vector<std::byte> Meeting::exchange_as_host(std::span<const std::byte> mine) {
  std::vector<std::byte> all(mine.begin(), mine.end());
  all.resize(mine.size() * guests_.size());
  for (size_t rank = 1; rank < guests_.size(); ++rank) {
    const auto peer = static_cast<int64_t>(rank);
    const Head head = receive_head(guests_[rank], deadline_, peer);
    if (head.bytes != static_cast<int64_t>(mine.size())) {
      disagreement_ = "join: rank " + std::to_string(peer) + " has another version of shardway";
      break;
    }
    receive_all(guests_[rank], std::span(all).subspan(rank * mine.size(), mine.size()), deadline_, peer);
  }
  if (!disagreement_.empty()) welcome();
  for (size_t rank = 1; rank < guests_.size(); ++rank)
    send_block(guests_[rank], all, false, deadline_, static_cast<int64_t>(rank));
  return all;
}

std::vector<std::byte> Meeting::exchange_as_guest(std::span<const std::byte> mine) {
  send_block(host_, mine, false, deadline_, 0);
  return receive_answer(host_, mine.size() * static_cast<size_t>(job_.size), deadline_);
}

}  // namespace shardway::shm
