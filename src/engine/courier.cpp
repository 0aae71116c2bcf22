#include "engine/courier.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "shm/board/interrupt.h"
#include "shm/board/subject.h"
#include "shm/memory/process.h"

namespace shardway {
namespace {

constexpr int64_t kFarewellTag = 0;
constexpr auto kFarewellTime = std::chrono::milliseconds(300);
constexpr int kLooksBetweenFarewells = 64;  // a look for one costs about as much as one for a message

// A farewell as bytes: the rank that was lost, then why.
std::vector<std::byte> written(int64_t rank, const std::string& why) {
  constexpr size_t kMostText = 400;
  const size_t length = std::min(why.size(), kMostText);
  std::vector<std::byte> bytes(sizeof(rank) + length);
  std::memcpy(bytes.data(), &rank, sizeof(rank));
  std::memcpy(bytes.data() + sizeof(rank), why.data(), length);
  return bytes;
}

}  // namespace

Courier::Courier(std::shared_ptr<MessageEngine> engine, std::chrono::milliseconds timeout)
    : engine_(std::move(engine)), timeout_(timeout), generation_(shm::fork_generation()) {}

CallOfCourier Courier::open(uint64_t mark) {
  check();
  return {.number = ++calls_, .mark = mark};
}

Courier::Errand Courier::send(const CallOfCourier& call, std::span<const std::byte> bytes, int64_t to,
                              MessageEngine::Keeper keeper) {
  check();
  Errand errand;
  errand.courier_ = this;
  errand.peer_ = to;
  errand.message_ = reaching(to, [&] { return engine_->send(bytes, to, tag_of(call), std::move(keeper)); });
  return errand;
}

Courier::Errand Courier::receive(const CallOfCourier& call, std::span<std::byte> room, int64_t from, Room is,
                                 MessageEngine::Keeper keeper) {
  check();
  Errand errand;
  errand.courier_ = this;
  errand.peer_ = from;
  if (is == Room::is_exact) errand.expected_ = static_cast<int64_t>(room.size());
  errand.message_ =
      reaching(from, [&] { return engine_->receive(room, from, tag_of(call), std::move(keeper)); });
  return errand;
}

void Courier::Errand::wait() { courier_->wait(*this); }

// A mate that ended the group of the host has told everybody why, before that.
shm::PeerLost Courier::give_up(int64_t rank, const std::string& why) {
  if (rank != this->rank()) await_farewell();
  return end_by(rank, why);
}

shm::PeerLost Courier::end_by(int64_t rank, const std::string& why) {
  bool is_first = false;
  End end;
  {
    const std::lock_guard lock(mutex_);
    is_first = !end_;
    if (is_first) end_ = End{.rank = rank, .why = why};
    end = *end_;
  }
  if (is_first) tell_all(end);
  return {end.rank, end.why};
}

// Runs `body`; the engine's error becomes one that names the peer.
template <class Body>
std::invoke_result_t<Body> Courier::reaching(int64_t peer, Body&& body) {
  try {
    return body();
  } catch (const shm::PeerLost&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw end_by(peer, error.what());
  }
}

// Below serves_threads() a thread of ours never asks the engine: it gives such a message up.
void Courier::wait(Errand& errand) {
  if (!serves_threads() && std::this_thread::get_id() != errand.poster_)
    throw shm::PeerLost(errand.peer_, "its message was dropped");
  const auto begin = std::chrono::steady_clock::now();
  auto next_check = begin + shm::kInterruptEvery;
  for (int looks = 1; !reaching(errand.peer_, [&] { return errand.message_->is_done(); }); ++looks) {
    if (looks % kLooksBetweenFarewells != 0) {
      std::this_thread::yield();
      continue;
    }
    reaching(errand.peer_, [&] { hear_farewell(); });
    check();
    const auto now = std::chrono::steady_clock::now();
    if (now < next_check) continue;
    next_check = now + shm::kInterruptEvery;
    try {
      shm::check_interrupt();
    } catch (...) {
      end_by(rank(), "it was interrupted");
      throw;
    }
    if (now - begin > timeout_)
      throw end_by(errand.peer_, "nothing came from it, or was taken by it, within " +
                                     std::to_string(timeout_.count()) + " ms");
  }
  if (errand.expected_ >= 0 && errand.message_->bytes() != errand.expected_)
    throw end_by(errand.peer_, "it sent " + std::to_string(errand.message_->bytes()) + " bytes where " +
                                   std::to_string(errand.expected_) + " were expected");
}

void Courier::check() const {
  if (generation_ != shm::fork_generation())
    throw shm::WrongProcess("the group belongs to the process that forked this one");
  const std::lock_guard lock(mutex_);
  if (end_) throw shm::PeerLost(end_->rank, end_->why);
}

void Courier::hear_farewell() {
  const auto letter = engine_->take(kFarewellTag);
  if (!letter || letter->bytes.size() < sizeof(int64_t)) return;
  End end{.rank = letter->from};
  std::memcpy(&end.rank, letter->bytes.data(), sizeof(end.rank));
  const auto* text = reinterpret_cast<const char*>(letter->bytes.data());
  end.why.assign(text + sizeof(end.rank), text + letter->bytes.size());
  if (end.rank < 0 || end.rank >= size()) end.rank = letter->from;
  const std::lock_guard lock(mutex_);
  if (!end_) end_ = std::move(end);
}

void Courier::keep_moving() {
  try {
    hear_farewell();
  } catch (const std::exception&) {  // the next message finds it out
  }
}

void Courier::await_farewell() {
  const auto end = std::chrono::steady_clock::now() + kFarewellTime;
  try {
    while (std::chrono::steady_clock::now() < end) {
      check();
      hear_farewell();
      std::this_thread::yield();
    }
  } catch (const std::exception&) {  // there is an end already, or the engine has failed
  }
}

void Courier::tell_all(const End& end) {
  const auto bytes = std::make_shared<const std::vector<std::byte>>(written(end.rank, end.why));
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    try {
      farewells_.push_back(engine_->send(*bytes, peer, kFarewellTag, bytes));
    } catch (const std::exception&) {  // whoever is not told learns it by the timeout
    }
  }
}

int64_t Courier::tag_of(const CallOfCourier& call) const {
  const uint64_t mark = shm::mark_of(call.mark, call.number);
  return 1 + static_cast<int64_t>((mark ^ mark >> 32) % static_cast<uint64_t>(engine_->tags() - 1));
}

}  // namespace shardway
