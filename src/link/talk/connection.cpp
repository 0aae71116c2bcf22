#include "link/talk/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "link/talk/secret.h"

namespace shardway::link {
namespace {

using std::chrono::seconds;

constexpr seconds kHelloLimit{5};
constexpr seconds kGrace{5};  // for the hub's answer to one who gives up
constexpr size_t kChunkBytes = size_t{1} << 18;

Instant from_now(std::chrono::nanoseconds some) { return Instant::clock::now() + some; }

bool is_nudge(const Json& message) { return text_or(message, "is", "") == "nudge"; }

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

[[noreturn]] void raise_lost(int number) { throw std::system_error(number, std::generic_category()); }

void check_version(const Json& hello) {
  const auto said = hello.find("shardway_link");
  if (said != hello.end() && *said == kLinkVersion) return;
  const std::string theirs = said == hello.end() ? "None" : said->dump();
  throw NotAdmitted(
      "it speaks version " + theirs + " of the link, this process version " + std::to_string(kLinkVersion),
      true);
}

}  // namespace

HubConnection::HubConnection(shm::File socket, const Claim& claim, const std::string& secret,
                             Instant deadline, const std::optional<std::string>& meeting)
    : socket_(std::move(socket)),
      hub_(greet(claim, secret, meeting, std::min(deadline, from_now(kHelloLimit)))) {}

Claim HubConnection::greet(const Claim& claim, const std::string& secret,
                           const std::optional<std::string>& meeting, Instant deadline) {
  const Json hello = next(deadline);
  check_version(hello);
  const Json place = meeting ? Json(*meeting) : Json(nullptr);
  const Json said = Json::array({text_in(hello, "nonce"), fresh_nonce(), claim.said(), place});
  send_all(packed({{"shardway_link", kLinkVersion},
                   {"nonce", said[1]},
                   {"claim", said[2]},
                   {"meeting", place},
                   {"proof", proof(secret, "member", said)}}),
           deadline);
  const Json answer = next(deadline);
  if (text_or(answer, "is", "") == "refused")
    throw NotAdmitted(text_or(answer, "why", ""), truth_or(answer, "is_final", false));
  if (!is_proof(member_of(answer, "proof"), proof(secret, "hub", said)))
    throw NotAdmitted("who listens there does not know the secret", true);
  inbox_.trust();
  return Claim::read(member_of(answer, "hub"));
}

Json HubConnection::ask(const Json& question, Instant deadline) {
  Json answer = answer_to(question, deadline);
  if (text_or(answer, "is", "") == "moved") throw HubMoved("it left the link");
  return answer;
}

Json HubConnection::answer_to(const Json& question, Instant deadline) {
  try {
    if (auto last_words = farewell()) return *last_words;
    send_all(packed(question), std::max(deadline, from_now(kGrace)));
    try {
      return next(deadline);
    } catch (const TooLate&) {
      send_all(packed({{"do", "withdraw"}}), from_now(kGrace));
      return next(from_now(kGrace));
    }
  } catch (const std::system_error& error) {
    close();
    throw HubGone(error.what());
  } catch (const NotOurs& error) {
    close();
    throw HubGone(error.what());
  } catch (const TooLate& error) {
    close();
    throw HubGone(error.what());
  }
}

// What the hub said unasked, before it closed the connection.
std::optional<Json> HubConnection::farewell() {
  while (has_news()) {
    Json message = next_of_any_kind(from_now(kHelloLimit));
    if (!is_nudge(message)) return message;
  }
  return std::nullopt;
}

bool HubConnection::has_news() const {
  if (!inbox_.is_empty() || !socket_) return true;
  char first = 0;
  return recv(socket_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !would_block();
}

// The next message but nudges, which only say that there is something to ask for.
Json HubConnection::next(Instant deadline) {
  while (true) {
    Json message = next_of_any_kind(deadline);
    if (!is_nudge(message)) return message;
  }
}

Json HubConnection::next_of_any_kind(Instant deadline) {
  while (true) {
    if (auto message = inbox_.next()) return *std::move(message);
    receive_some(deadline);
  }
}

void HubConnection::receive_some(Instant deadline) {
  if (!socket_) raise_lost(EBADF);
  if (!is_ready_before(socket_.get(), POLLIN, deadline)) throw TooLate("no answer within the timeout");
  std::string some(kChunkBytes, '\0');
  const ssize_t came = recv(socket_.get(), some.data(), some.size(), 0);
  if (came == 0) throw std::system_error(ECONNRESET, std::generic_category(), "the connection was closed");
  if (came < 0 && !would_block()) raise_lost(errno);
  if (came > 0) inbox_.add(std::string_view(some).substr(0, static_cast<size_t>(came)));
}

void HubConnection::send_all(const std::string& bytes, Instant deadline) {
  if (!socket_) raise_lost(EBADF);
  size_t sent = 0;
  while (sent < bytes.size()) {
    if (!is_ready_before(socket_.get(), POLLOUT, deadline)) throw TooLate("no answer within the timeout");
    const ssize_t some = send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (some < 0 && !would_block()) raise_lost(errno);
    sent += static_cast<size_t>(std::max<ssize_t>(some, 0));
  }
}

void HubConnection::leave() {
  try {
    send_all(packed({{"do", "leave"}}), from_now(kGrace));
  } catch (const std::exception&) {  // the hub is gone, and needs no farewell
  }
  close();
}

void HubConnection::close() {
  const std::lock_guard lock(closing_);
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
  socket_.close();
}

void HubConnection::wake() {
  const std::lock_guard lock(closing_);
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace shardway::link
