#include "link/hub/membership.h"

#include <algorithm>
#include <random>
#include <system_error>
#include <thread>

namespace shardway::link {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstNap{5};
constexpr milliseconds kLongestNap{200};
constexpr milliseconds kDialLimit{5000};
constexpr milliseconds kLeastDial{100};
// With who holds this place: a process that has just died may still seem to have it.
constexpr milliseconds kPatienceWithHolder{3000};

Instant now() { return Instant::clock::now(); }

// Ranks that try again at the same moments would meet at the hub again and again.
std::chrono::nanoseconds some_of(milliseconds nap) {
  thread_local std::minstd_rand dice(std::random_device{}());
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      nap * std::uniform_real_distribution<double>(0.5, 1.0)(dice));
}

}  // namespace

void Membership::connect(Instant deadline) {
  const Instant started = now();
  const auto patience = std::min<std::chrono::nanoseconds>(kPatienceWithHolder, (deadline - started) / 2);
  milliseconds nap = kFirstNap;
  while (connection_ == nullptr) {
    const std::string problem = try_to_connect(deadline, now() - started <= patience);
    if (problem.empty()) return;
    if (now() + nap > deadline || has_given_up_) throw TooLate(to_string(address_) + ": " + problem);
    std::this_thread::sleep_for(some_of(nap));
    nap = std::min(2 * nap, kLongestNap);
  }
}

std::string Membership::try_to_connect(Instant deadline, bool is_patient) {
  try {
    try_to_hold();
    const Instant dialled_by = std::max(now() + kLeastDial, std::min(now() + kDialLimit, deadline));
    set_connection(std::make_shared<HubConnection>(address_.dial(dialled_by), claim_, secret_, deadline));
    return {};
  } catch (const NotAdmitted& refusal) {
    if (refusal.is_final() || !is_patient)
      throw std::invalid_argument(to_string(address_) + " refused " + to_string(claim_) + ": " +
                                  refusal.what());
    return refusal.what();
  } catch (const NotOurs& error) {
    return std::string("what listens there is not a link of shardway: ") + error.what();
  } catch (const std::system_error& error) {
    return error.what();
  } catch (const TooLate& error) {
    return error.what();
  }
}

void Membership::try_to_hold() {
  if (claim_.rank > 0 || hub_ != nullptr) return;
  try {
    hub_ = std::make_unique<LinkHub>(address_.listen(), secret_, claim_);
  } catch (const std::system_error&) {  // another process listens, or the address is another host's
  }
}

void Membership::set_connection(std::shared_ptr<HubConnection> connection) {
  const std::lock_guard lock(changing_);
  connection_ = std::move(connection);
}

std::shared_ptr<HubConnection> Membership::visit(const std::string& meeting, Instant deadline) {
  try {
    auto made = std::make_shared<HubConnection>(address_.dial(deadline), claim_, secret_, deadline, meeting);
    const std::lock_guard lock(changing_);
    visit_ = made;
    return made;
  } catch (const std::runtime_error& error) {
    throw HubGone("the meeting at " + to_string(address_) + ": " + error.what());
  }
}

void Membership::forget_connection() {
  if (connection_ != nullptr) connection_->close();
  set_connection(nullptr);
}

void Membership::give_up() {
  has_given_up_ = true;
  const std::lock_guard lock(changing_);
  if (connection_ != nullptr) connection_->wake();
  if (const auto visit = visit_.lock()) visit->wake();
}

void Membership::leave() {
  if (connection_ != nullptr) connection_->leave();
  set_connection(nullptr);
  if (hub_ != nullptr) hub_->close();
  hub_ = nullptr;
}

}  // namespace shardway::link
