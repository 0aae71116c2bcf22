#include "shardway/link.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <set>

#include "link/moves/delivery.h"
#include "link/moves/overlap.h"
#include "link/talk/secret.h"
#include "shardway/group.h"

namespace shardway {
namespace link {

struct SourceState {
  std::shared_ptr<LinkedJob> job;
  Declaration declared;
  int64_t version = 0;
};

struct TargetState {
  std::shared_ptr<LinkedJob> job;
  Declaration declared;
  int64_t version = 0;
  std::optional<std::string> incomplete = "nothing has been received";
};

namespace {

const SharedTensors kNoTensors = std::make_shared<const TensorsByName>();

// Runs `body`. What a hub says that nobody should say is a c10::DistBackendError.
template <class Body>
auto understood(const char* call, Body&& body) {
  try {
    return body();
  } catch (const NotOurs& error) {
    C10_THROW_ERROR(DistBackendError, std::string(call) + ": " + error.what());
  } catch (const HubGone& error) {
    C10_THROW_ERROR(DistBackendError, std::string(call) + ": " + error.what());
  }
}

// A line for each tensor that is not as it was published.
std::vector<std::string> changes(const Json& before, const Json& after) {
  std::set<std::string> names;
  for (const auto& [name, _] : before.items()) names.insert(name);
  for (const auto& [name, _] : after.items()) names.insert(name);
  std::vector<std::string> lines;
  for (const std::string& name : names) {
    const bool is_in_both = before.contains(name) && after.contains(name);
    if (!is_in_both || before.at(name) != after.at(name))
      lines.push_back(name + ": it is not as it was published");
  }
  return lines;
}

int64_t sent(SourceState& state, Declaration declared) {
  std::vector<std::string> problems = declared.problems;
  for (const std::string& line : changes(state.declared.entries, declared.entries)) problems.push_back(line);
  const Delivery delivery{.call = "send",
                          .parts = declared.parts,
                          .destinations = kNoTensors,
                          .problems = std::move(problems),
                          .on_begin = [&](int64_t) { state.declared = declared; }};
  state.version = understood("send", [&] { return delivery.run(*state.job); });
  return state.version;
}

int64_t received(TargetState& state) {
  std::optional<int64_t> begun;
  const Delivery delivery{.call = "receive",
                          .parts = kNoTensors,
                          .destinations = state.declared.parts,
                          .on_begin = [&](int64_t version) {
                            begun = version;
                            state.incomplete = "version " + std::to_string(version) + " is on its way";
                          }};
  try {
    state.version = understood("receive", [&] { return delivery.run(*state.job); });
  } catch (const std::exception& error) {
    if (begun) state.incomplete = "version " + std::to_string(*begun) + " did not arrive: " + told(error);
    throw;
  }
  state.incomplete = std::nullopt;
  return state.version;
}

// The number that was given, else that of the environment, else `otherwise`.
int64_t own_number(std::optional<int64_t> given, const char* word, int64_t otherwise) {
  if (given) return *given;
  const char* text = std::getenv(word);
  if (text == nullptr) return otherwise;
  int64_t number = 0;
  const std::string_view digits(text);
  const auto read = std::from_chars(digits.begin(), digits.end(), number);
  if (read.ec != std::errc() || read.ptr != digits.end() || number < 0)
    throw std::invalid_argument(std::string(word) + "=" + text + " in the environment is not a number");
  return number;
}

std::shared_ptr<LinkedJob> connected(const ConnectOptions& options) {
  if (options.timeout <= std::chrono::milliseconds(0))
    throw std::invalid_argument("timeout=" + std::to_string(options.timeout.count()) + " ms is not positive");
  const Group world;
  const int64_t rank = own_number(options.rank, "RANK", world.rank());
  const int64_t size = own_number(options.size, "WORLD_SIZE", world.size());
  return std::make_shared<LinkedJob>(LinkAddress::read(options.address), Claim::own(options.role, rank, size),
                                     read_secret(options.secret), options.timeout);
}

}  // namespace
}  // namespace link

int64_t LinkSource::send() { return link::sent(*state_, state_->declared); }

int64_t LinkSource::send(const std::vector<NamedTensor>& tensors) {
  const link::Claim& claim = state_->job->claim();
  return link::sent(*state_, link::Declaration::of(tensors, claim.rank, claim.size));
}

int64_t LinkSource::version() const { return state_->version; }
std::string LinkSource::explain() const { return state_->job->explain(); }

int64_t LinkTarget::receive() { return link::received(*state_); }
int64_t LinkTarget::version() const { return state_->version; }
std::optional<std::string> LinkTarget::incomplete() const { return state_->incomplete; }
std::string LinkTarget::explain() const { return state_->job->explain(); }

JobLink& JobLink::operator=(JobLink&& other) noexcept {
  std::swap(job_, other.job_);
  return *this;
}

JobLink::~JobLink() {
  if (job_ != nullptr && std::uncaught_exceptions() > exceptions_) job_->leave_as_lost();
  close();
}

const std::string& JobLink::role() const { return job_->claim().role; }
int64_t JobLink::rank() const { return job_->claim().rank; }
int64_t JobLink::size() const { return job_->claim().size; }
std::string JobLink::explain() const { return job_->explain(); }

void JobLink::close() {
  if (job_ != nullptr) job_->close();
}

LinkSource JobLink::publish(const std::vector<NamedTensor>& tensors) {
  const link::Claim& claim = job_->claim();
  const auto state = std::make_shared<link::SourceState>(
      link::SourceState{.job = job_, .declared = link::Declaration::of(tensors, claim.rank, claim.size)});
  const Json said = state->declared.said("publish", false);
  state->version = link::understood("publish", [&] { return job_->declare(said); });
  return LinkSource(state);
}

LinkTarget JobLink::subscribe(const std::vector<NamedTensor>& destinations, const SubscribeOptions& options) {
  const link::Claim& claim = job_->claim();
  link::Declaration declared = link::Declaration::of(destinations, claim.rank, claim.size);
  for (const std::string& line : link::overlaps(*declared.parts)) declared.problems.push_back(line);
  const Json said = declared.said("subscribe", options.cast);
  link::understood("subscribe", [&] { return job_->declare(said); });
  return LinkTarget(
      std::make_shared<link::TargetState>(link::TargetState{.job = job_, .declared = std::move(declared)}));
}

JobLink connect(const ConnectOptions& options) {
  try {
    return JobLink(link::understood("connect", [&] { return link::connected(options); }));
  } catch (const std::invalid_argument& mistake) {
    C10_THROW_ERROR(ValueError, std::string("connect: ") + mistake.what());
  }
}

}  // namespace shardway
