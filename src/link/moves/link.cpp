#include "shardway/link.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <thread>

#include "link/moves/delivery.h"
#include "link/moves/overlap.h"
#include "link/talk/secret.h"
#include "shardway/group.h"

namespace shardway {
namespace link {

using SharedDeclaration = std::shared_ptr<const Declaration>;

// What is published: it is sent by the caller's thread or, if the caller does not wait, by one of its own.
class SourceState {
 public:
  SourceState(std::shared_ptr<LinkedJob> job, Declaration declared);
  ~SourceState();
  SourceState(const SourceState&) = delete;
  SourceState& operator=(const SourceState&) = delete;

  // Tells the hub, and is kept by the job.
  static std::shared_ptr<SourceState> published(std::shared_ptr<LinkedJob> job, Declaration declared);

  const LinkedJob& job() const { return *job_; }
  const SharedDeclaration& declared() const { return declared_; }
  int64_t version() const { return version_; }

  // Returns the version that the role's subscribers have, or will have.
  int64_t send(const SharedDeclaration& given, const SendOptions& options);

 private:
  int64_t sent(const SharedTensors& parts, const std::vector<std::string>& problems, int64_t sets,
               const std::function<void()>& on_begin);
  void hold(const SharedDeclaration& given);
  void send_held();

  std::shared_ptr<LinkedJob> job_;
  SharedDeclaration declared_;
  std::atomic<int64_t> version_{0};  // of the last one that has arrived; its thread writes it
  int64_t promised_ = 0;
  std::shared_ptr<HeldVersions> held_ = std::make_shared<HeldVersions>();
  std::thread thread_;
  int64_t process_ = getpid();
};

struct TargetState {
  std::shared_ptr<LinkedJob> job;
  Declaration declared;
  std::shared_ptr<Loader> loader;
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

// Adds a line for each tensor that is not as it was published.
void add_changes(const Json& before, const Json& after, std::vector<std::string>& lines) {
  std::map<std::string, std::array<const Json*, 2>> found;
  for (const auto& [name, entry] : before.items()) found[name][0] = &entry;
  for (const auto& [name, entry] : after.items()) found[name][1] = &entry;
  for (const auto& [name, entries] : found) {
    const bool is_in_both = entries[0] != nullptr && entries[1] != nullptr;
    if (!is_in_both || *entries[0] != *entries[1]) lines.push_back(name + ": it is not as it was published");
  }
}

int64_t received(TargetState& state) {
  std::optional<int64_t> begun;
  const Delivery delivery{.call = "receive",
                          .parts = kNoTensors,
                          .destinations = state.declared.parts,
                          .loader = state.loader,
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

SourceState::SourceState(std::shared_ptr<LinkedJob> job, Declaration declared) : job_(std::move(job)) {
  for (const auto& [name, _] : declared.loads)
    declared.problems.push_back(name + ": a Load is a destination and cannot be sent");
  declared_ = std::make_shared<const Declaration>(std::move(declared));
}

SourceState::~SourceState() {
  if (!thread_.joinable()) return;
  held_->close();
  if (getpid() == process_) {
    thread_.join();
  } else {
    thread_.detach();  // a child of fork has no such thread
  }
}

std::shared_ptr<SourceState> SourceState::published(std::shared_ptr<LinkedJob> job, Declaration declared) {
  job->finish_sending();
  const auto state = std::make_shared<SourceState>(job, std::move(declared));
  const Json said = state->declared_->said("publish", false);
  state->version_ = understood("publish", [&] { return job->declare(said); });
  state->promised_ = state->version_;
  job->send_by(state->held_, state);
  return state;
}

int64_t SourceState::send(const SharedDeclaration& given, const SendOptions& options) {
  std::vector<std::string> problems = given->problems;
  if (given != declared_) add_changes(declared_->entries, given->entries, problems);
  try {
    if (options.wait || !problems.empty()) {
      held_->drain(job_->timeout());
      return sent(given->parts, problems, 1, [&] { declared_ = given; });
    }
    hold(given);
  } catch (const std::exception&) {
    promised_ = version_;  // a version that has not begun has no number
    throw;
  }
  promised_ = std::max<int64_t>(promised_, version_) + 1;
  return promised_;
}

void SourceState::hold(const SharedDeclaration& given) {
  held_->add(*given->parts, job_->timeout());
  if (!thread_.joinable()) thread_ = std::thread([this] { send_held(); });
  declared_ = given;
}

void SourceState::send_held() {
  while (const SharedTensors parts = held_->next()) {
    std::exception_ptr failure;
    try {
      sent(parts, {}, HeldVersions::kMost, [] {});
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    held_->done(parts, failure);
  }
}

int64_t SourceState::sent(const SharedTensors& parts, const std::vector<std::string>& problems, int64_t sets,
                          const std::function<void()>& on_begin) {
  const Delivery delivery{.call = "send",
                          .parts = parts,
                          .destinations = kNoTensors,
                          .problems = problems,
                          .sets = sets,
                          .on_begin = [&](int64_t) { on_begin(); }};
  version_ = understood("send", [&] { return delivery.run(*job_); });
  return version_;
}

}  // namespace link

int64_t LinkSource::send(const SendOptions& options) {
  const link::SharedDeclaration declared = state_->declared();
  return state_->send(declared, options);
}

int64_t LinkSource::send(const std::vector<NamedTensor>& tensors, const SendOptions& options) {
  const link::Claim& claim = state_->job().claim();
  return state_->send(
      std::make_shared<const link::Declaration>(link::Declaration::of(tensors, claim.rank, claim.size)),
      options);
}

int64_t LinkSource::version() const { return state_->version(); }
std::string LinkSource::explain() const { return state_->job().explain(); }

int64_t LinkTarget::receive() { return link::received(*state_); }
int64_t LinkTarget::version() const { return state_->version; }
std::optional<std::string> LinkTarget::incomplete() const { return state_->incomplete; }
std::string LinkTarget::explain() const { return state_->job->explain(); }

JobLink& JobLink::operator=(JobLink&& other) noexcept {
  std::swap(job_, other.job_);
  return *this;
}

JobLink::~JobLink() {
  if (job_ == nullptr) return;
  try {
    if (std::uncaught_exceptions() > exceptions_) job_->leave_as_lost();
    job_->close();
  } catch (const std::exception&) {  // whoever wants to know calls close
  }
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
  return LinkSource(
      link::SourceState::published(job_, link::Declaration::of(tensors, claim.rank, claim.size)));
}

LinkTarget JobLink::subscribe(const std::vector<NamedTensor>& destinations, const SubscribeOptions& options) {
  const link::Claim& claim = job_->claim();
  link::Declaration declared = link::Declaration::of(destinations, claim.rank, claim.size);
  for (const std::string& line : link::overlaps(*declared.parts)) declared.problems.push_back(line);
  const Json said = declared.said("subscribe", options.cast);
  link::understood("subscribe", [&] { return job_->declare(said); });
  const auto loader = std::make_shared<link::Loader>(declared.loads);
  return LinkTarget(std::make_shared<link::TargetState>(
      link::TargetState{.job = job_, .declared = std::move(declared), .loader = loader}));
}

JobLink connect(const ConnectOptions& options) {
  try {
    return JobLink(link::understood("connect", [&] { return link::connected(options); }));
  } catch (const std::invalid_argument& mistake) {
    C10_THROW_ERROR(ValueError, std::string("connect: ") + mistake.what());
  }
}

}  // namespace shardway
