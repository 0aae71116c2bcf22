#include "link/hub/server.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "link/talk/connection.h"
#include "link/talk/secret.h"
#include "record/log.h"

namespace shardway::link {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMostStrangers = 128;
constexpr auto kPatienceWithStrangers = 5s;
constexpr auto kFarewellLimit = 200ms;
constexpr int kLongestWaitMs = 1000;
constexpr size_t kBytesAtOnce = size_t{1} << 18;
constexpr uint64_t kListener = 0;  // numbers of what epoll watches beside peers
constexpr uint64_t kBell = ~uint64_t{0};

void check(bool is_done, const char* call) {
  if (!is_done) throw std::system_error(errno, std::generic_category(), call);
}

void watch_file(const shm::File& events, int file, uint64_t number, uint32_t wanted, int change) {
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = number;
  check(epoll_ctl(events.get(), change, file, &event) == 0, "epoll_ctl");
}

std::string host_of(const sockaddr_storage& address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> host{};
  const int failed = getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host.data(), host.size(),
                                 nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? host.data() : "an unknown host";
}

bool can_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

Json value_or_null(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found == message.end() ? Json(nullptr) : *found;
}

// Whether the other side has closed a connection; what it still says is dropped.
bool has_ended(int socket) {
  std::string some(kBytesAtOnce, '\0');
  const ssize_t came = recv(socket, some.data(), some.size(), 0);
  return came == 0 || (came < 0 && !can_wait());
}

}  // namespace

HubServer::HubServer(shm::File listener, std::string secret, const Claim& holder)
    : secret_(std::move(secret)),
      holder_(holder),
      registry_(holder),
      listener_(std::move(listener)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(events_ && bell_, "a hub's events");
  check(fcntl(listener_.get(), F_SETFL, O_NONBLOCK) == 0, "fcntl");
  watch_file(events_, listener_.get(), kListener, EPOLLIN, EPOLL_CTL_ADD);
  watch_file(events_, bell_.get(), kBell, EPOLLIN, EPOLL_CTL_ADD);
  thread_ = std::thread([this] { run(); });
}

void HubServer::stop() {
  is_over_ = true;
  const uint64_t one = 1;
  (void)!write(bell_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void HubServer::run() {
  std::array<epoll_event, 64> found{};
  while (!is_over_) {
    const int count = epoll_wait(events_.get(), found.data(), static_cast<int>(found.size()), kLongestWaitMs);
    for (int i = 0; i < count; ++i) answer(found.at(static_cast<size_t>(i)));
    drop_slow_strangers();
  }
}

// No failure of one connection ends the link.
void HubServer::answer(const epoll_event& event) {
  try {
    if (event.data.u64 == kListener) {
      accept();
    } else if (const auto found = peers_.find(event.data.u64); found != peers_.end()) {
      serve(SharedPeer(found->second), event.events);
    }
  } catch (const std::exception& error) {
    if (record::log_level() >= record::LogLevel::info)
      record::print_lines(std::string("link: ") + error.what());
  }
}

void HubServer::accept() {
  sockaddr_storage where{};
  socklen_t bytes = sizeof(where);
  shm::File made(
      accept4(listener_.get(), reinterpret_cast<sockaddr*>(&where), &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!made) return;
  const auto strangers = std::count_if(peers_.begin(), peers_.end(),
                                       [](const auto& peer) { return peer.second->is_stranger(); });
  if (strangers >= kMostStrangers) return;
  tune(made.get());
  const auto peer = std::make_shared<HubPeer>(HubPeer{.number = next_number_++,
                                                      .socket = LinkSocket(std::move(made)),
                                                      .where = host_of(where, bytes),
                                                      .nonce = fresh_nonce(),
                                                      .since = Instant::clock::now()});
  peers_[peer->number] = peer;
  watch(*peer, EPOLL_CTL_ADD);
  send(peer, {{"shardway_link", kLinkVersion}, {"nonce", peer->nonce}});
}

void HubServer::drop_slow_strangers() {
  const Instant latest = Instant::clock::now() - kPatienceWithStrangers;
  std::vector<SharedPeer> slow;
  for (const auto& [number, peer] : peers_) {
    if (peer->is_stranger() && peer->since < latest) slow.push_back(peer);
  }
  for (const SharedPeer& peer : slow) drop(peer, "");
}

void HubServer::serve(const SharedPeer& peer, uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush(*peer);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0) return;
  try {
    read_some(peer);
  } catch (const std::system_error& error) {
    drop(peer, "died (" + error.code().message() + ")");
  } catch (const std::exception& error) {  // of a message that nobody should have sent: the others go on
    drop(peer, std::string("said what cannot be understood (") + error.what() + ")");
  }
}

void HubServer::read_some(const SharedPeer& peer) {
  std::string some(kBytesAtOnce, '\0');
  const ssize_t came = recv(peer->socket.get(), some.data(), some.size(), 0);
  if (came == 0) return drop(peer, "died");
  if (came < 0 && can_wait()) return;
  check(came > 0, "");
  peer->inbox.add(std::string_view(some).substr(0, static_cast<size_t>(came)));
  while (is_here(*peer)) {
    const auto message = peer->inbox.next();
    if (!message) return;
    hear(peer, *message);
  }
}

void HubServer::hear(const SharedPeer& peer, const Json& message) {
  if (peer->is_refused) return;
  if (peer->member != nullptr) return registry_.hear(peer->member, message);
  if (peer->visitor != nullptr) return registry_.meeting().hear(*peer->visitor, message);
  admit(peer, message);
}

void HubServer::admit(const SharedPeer& peer, const Json& message) {
  const Json version = value_or_null(message, "shardway_link");
  if (version != kLinkVersion) {
    const std::string theirs = version.is_null() ? "None" : version.dump();
    return refuse(
        peer, "this link speaks version " + std::to_string(kLinkVersion) + ", the newcomer version " + theirs,
        true);
  }
  const Claim claim = Claim::read(value_or_null(message, "claim"));
  const Json meeting = value_or_null(message, "meeting");
  const Json said = Json::array({peer->nonce, value_or_null(message, "nonce"), claim.said(), meeting});
  if (!is_proof(value_or_null(message, "proof"), proof(secret_, "member", said))) {
    registry_.note_refusal("a process at " + peer->where + " has another secret");
    return refuse(peer, "the secret is not that of " + to_string(holder_), true);
  }
  try {
    enter(peer, claim, meeting);
  } catch (const NotAdmitted& refusal) {
    return refuse(peer, refusal.what(), refusal.is_final());
  }
  peer->inbox.trust();
  send(peer, {{"is", "welcome"}, {"hub", holder_.said()}, {"proof", proof(secret_, "hub", said)}});
}

void HubServer::enter(const SharedPeer& peer, const Claim& claim, const Json& meeting) {
  const std::weak_ptr<HubPeer> known = peer;  // which holds what is made here
  const auto answer = [this, known](const Json& message) {
    if (const SharedPeer peer = known.lock()) send(peer, message);
  };
  if (meeting.is_null()) {
    peer->member = registry_.admit(claim, answer);
    return;
  }
  if (!registry_.meeting().admits(meeting)) throw NotAdmitted("that meeting is over", true);
  const auto dismiss = [this, known] {
    if (const SharedPeer peer = known.lock()) drop(peer, "");
  };
  peer->visitor = std::make_shared<MeetingVisitor>(MeetingVisitor{.answer = answer, .dismiss = dismiss});
  registry_.meeting().enter(peer->visitor);
}

void HubServer::refuse(const SharedPeer& peer, const std::string& why, bool is_final) {
  peer->is_refused = true;  // it closes the connection, or is dropped as slow
  send(peer, {{"is", "refused"}, {"why", why}, {"is_final", is_final}});
}

void HubServer::send(const SharedPeer& peer, const Json& message) {
  if (!is_here(*peer)) return;
  peer->outbox += packed(message);
  flush(*peer);
}

// What cannot be sent any more is dropped. The next read finds out why.
void HubServer::flush(HubPeer& peer) {
  size_t sent = 0;
  while (sent < peer.outbox.size()) {
    const ssize_t some =
        ::send(peer.socket.get(), peer.outbox.data() + sent, peer.outbox.size() - sent, MSG_NOSIGNAL);
    if (some < 0 && can_wait()) break;
    sent = some < 0 ? peer.outbox.size() : sent + static_cast<size_t>(some);
  }
  peer.outbox.erase(0, sent);
  const bool was_flushing = std::exchange(peer.is_flushing, !peer.outbox.empty());
  if (was_flushing != peer.is_flushing) watch(peer, EPOLL_CTL_MOD);
}

void HubServer::watch(const HubPeer& peer, int change) const {
  const uint32_t wanted = EPOLLIN | (peer.outbox.empty() ? 0U : static_cast<uint32_t>(EPOLLOUT));
  watch_file(events_, peer.socket.get(), peer.number, wanted, change);
}

void HubServer::drop(const SharedPeer& peer, const std::string& why) {
  if (peers_.erase(peer->number) == 0) return;
  peer->socket.close();
  if (peer->visitor != nullptr) registry_.meeting().leave(peer->visitor);
  if (peer->member != nullptr) registry_.lose(peer->member, why);
}

// Closed at once, a connection with unread bytes would take back what was sent last.
void HubServer::say_farewell() {
  listener_.close();
  registry_.meeting().close();
  const auto peers = peers_;
  for (const auto& [number, peer] : peers) send_last_words(*peer);
  await_their_end();
}

void HubServer::send_last_words(HubPeer& peer) {
  if (peer.member != nullptr) peer.outbox += packed(registry_.farewell(*peer.member));
  const Instant end = Instant::clock::now() + kFarewellLimit;
  flush(peer);
  while (!peer.outbox.empty() && is_ready_before(peer.socket.get(), POLLOUT, end)) flush(peer);
  shutdown(peer.socket.get(), SHUT_WR);
}

void HubServer::await_their_end() {
  const Instant end = Instant::clock::now() + kFarewellLimit;
  for (const auto& [number, peer] : peers_) {
    while (is_ready_before(peer->socket.get(), POLLIN, end) && !has_ended(peer->socket.get())) {
    }
  }
}

}  // namespace shardway::link
