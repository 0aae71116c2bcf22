#include "link/moves/linked_job.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace shardway::link {
namespace {

// What the members of a list in an answer are called.
std::vector<std::string> names_in(const Json& answer, const std::string& key) {
  std::vector<std::string> names;
  for (const Json& name : member_of(answer, key)) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of a transfer of which another hub knows nothing.
bool is_report(const Json& question) {
  const std::string call = text_or(question, "do", "");
  return call == "done" || call == "failed";
}

}  // namespace

std::string told(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  return ours == nullptr ? error.what() : ours->what_without_backtrace();
}

LinkedJob::LinkedJob(LinkAddress address, Claim claim, std::string secret, std::chrono::milliseconds timeout)
    : membership_(std::move(address), std::move(claim), std::move(secret)),
      timeout_(timeout),
      process_(getpid()) {
  try {
    join(deadline());
  } catch (...) {
    membership_.leave();
    throw;
  }
}

LinkedJob::~LinkedJob() = default;

std::string LinkedJob::explain() const {
  if (held_) held_->await_sender(timeout_);
  if (joint_ == nullptr) raise_mistake("explain", "the plan is made with the next version");
  return joint_->explain(held_ ? held_->bytes() : 0);
}

void LinkedJob::close() {
  std::exception_ptr failure;
  if (getpid() == process_) {
    try {
      finish_sending();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    if (held_) held_->close();
    membership_.leave();
    leave_joint_group();
  }
  joint_ = nullptr;
  held_ = nullptr;
  const auto sender = std::exchange(sender_, nullptr);
  if (ended_.empty()) ended_ = "it was closed";
  if (failure) std::rethrow_exception(failure);
}

void LinkedJob::leave_as_lost() {
  if (getpid() == process_) {
    stop_sending();
    membership_.forget_connection();
  }
  close();
}

void LinkedJob::send_by(std::shared_ptr<HeldVersions> held, std::shared_ptr<void> owner) {
  held_ = std::move(held);
  sender_ = std::move(owner);
}

void LinkedJob::finish_sending() const {
  if (held_) held_->drain(timeout_);
}

// Nobody waits for what is under way.
void LinkedJob::stop_sending() {
  if (!held_) return;
  held_->close();
  membership_.give_up();
  {
    const std::lock_guard lock(changing_);
    if (joint_ != nullptr) joint_->leave();
  }
  held_->await_sender(timeout_);
  held_ = nullptr;
}

int64_t LinkedJob::note_version(int64_t version) {
  version_ = version;
  if (declaration_) (*declaration_)["version"] = version;
  told_of_.clear();
  return version;
}

int64_t LinkedJob::declare(Json declaration) {
  declaration["version"] = version_;
  declaration_ = std::nullopt;
  leave_joint_group();  // the others ask the hub, too
  const std::string call = text_in(declaration, "do");
  const Json answer = ask(call, declaration, deadline());
  declaration_ = std::move(declaration);
  declared_to_ = membership_.connection();
  version_ = integer_in(answer, "version");
  return version_;
}

Json LinkedJob::ask(const std::string& call, const Json& question, Instant deadline) {
  check_open(call);
  Json answer;
  try {
    answer = asked(call, question, deadline);
  } catch (const TooLate& error) {
    raise_loss(call, waited() + error.what());
  } catch (const HubGone& gone) {
    lose_hub(call, gone);
  }
  return judged(call, std::move(answer));
}

Json LinkedJob::asked(const std::string& call, const Json& question, Instant deadline) {
  try {
    find_hub(call, deadline);
    return membership_.connection()->ask(question, deadline);
  } catch (const HubGone& gone) {
    const std::string hub = hub_role();
    const bool has_moved = dynamic_cast<const HubMoved*>(&gone) != nullptr;
    const bool is_known = has_moved || (contains(told_of_, hub) && hub != claim().role);
    if (is_report(question) || !is_known) throw;
  }
  // It was raised already that this role is lost; its rank that held the link came last.
  told_of_.clear();
  membership_.forget_connection();
  return asked(call, question, deadline);
}

void LinkedJob::find_hub(const std::string& call, Instant deadline) {
  if (membership_.connection() == nullptr) join(deadline);
  const auto connection = membership_.connection();
  if (!declaration_ || declared_to_ == connection) return;
  judged(call, connection->ask(*declaration_, deadline));
  declared_to_ = connection;
}

std::shared_ptr<JointGroup> LinkedJob::joint_group(const Json& go) {
  const std::string generation = text_in(go, "generation");
  if (joint_ == nullptr || joint_->generation() != generation) {
    leave_joint_group();  // the old one first
    const Roster roster = Roster::read(member_of(go, "roster"));
    const auto meeting = membership_.visit(roster.meeting, deadline());
    auto made = std::make_shared<JointGroup>(generation, roster, claim(), meeting, timeout_);
    const std::lock_guard lock(changing_);
    joint_ = std::move(made);
  }
  return joint_;
}

std::shared_ptr<JointGroup> LinkedJob::quick_group(const std::string& call) const {
  check_open(call);
  return joint_ != nullptr && joint_->is_quick() ? joint_ : nullptr;
}

bool LinkedJob::has_news() const {
  const auto& connection = membership_.connection();
  return connection == nullptr || connection->has_news();
}

void LinkedJob::leave_joint_group() {
  if (joint_ != nullptr) joint_->leave();
  const std::lock_guard lock(changing_);
  joint_ = nullptr;
}

void LinkedJob::join(Instant deadline) {
  while (true) {
    try {
      membership_.connect(deadline);
      judged("connect", membership_.connection()->ask({{"do", "join"}}, deadline));
      return;
    } catch (const TooLate& error) {
      raise_loss("connect", waited() + error.what());
    } catch (const HubGone& gone) {
      membership_.forget_connection();
      if (Instant::clock::now() > deadline) raise_loss("connect", waited() + gone.what());
    } catch (const std::invalid_argument& refusal) {
      C10_THROW_ERROR(ValueError, std::string("connect: ") + refusal.what());
    }
  }
}

void LinkedJob::check_open(const std::string& call) const {
  if (getpid() != process_)
    raise_mistake(call, "this link is of process " + std::to_string(process_) +
                            "; a child of fork has to connect itself");
  if (!ended_.empty()) raise_loss(call, "the link is closed: " + ended_);
}

Json LinkedJob::judged(const std::string& call, Json answer) {
  const std::string kind = text_or(answer, "is", "");
  const std::string why = text_or(answer, "why", "");
  if (kind == "refused") raise_mistake(call, why);
  if (kind == "late") raise_loss(call, waited() + why);
  if (kind == "closed") {
    ended_ = why;
    raise_loss(call, "the link is closed: " + why);
  }
  if (kind == "lost" || kind == "torn") {
    told_of_ = names_in(answer, "gone");
    raise_loss(call, why);
  }
  return answer;
}

void LinkedJob::lose_hub(const std::string& call, const HubGone& gone) {
  const auto connection = membership_.connection();
  const std::string who =
      connection == nullptr ? "the process that holds the link" : to_string(connection->hub());
  if (hub_role() == claim().role) ended_ = who + " died: this job has to connect again";
  membership_.forget_connection();
  leave_joint_group();
  raise_loss(call, who + ", which holds the link, is gone (" + gone.what() + ")");
}

std::string LinkedJob::hub_role() const {
  const auto& connection = membership_.connection();
  return connection == nullptr ? "" : connection->hub().role;
}

std::string LinkedJob::waited() const {
  std::ostringstream text;
  text << "waited for " << std::chrono::duration<double>(timeout_).count() << " s: ";
  return text.str();
}

void LinkedJob::raise_loss(const std::string& call, const std::string& why) const {
  C10_THROW_ERROR(DistBackendError, call + ": " + why + " (" + to_string(claim()) + ")");
}

void LinkedJob::raise_mistake(const std::string& call, const std::string& why) const {
  C10_THROW_ERROR(ValueError, call + ": " + why + " (" + to_string(claim()) + ")");
}

}  // namespace shardway::link
