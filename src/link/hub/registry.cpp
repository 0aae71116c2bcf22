#include "link/hub/registry.h"

#include <algorithm>
#include <set>

#include "link/talk/connection.h"
#include "link/talk/secret.h"

namespace shardway::link {
namespace {

constexpr size_t kMostRefusals = 8;

bool is_among(const std::vector<SharedRole>& roles, const SharedRole& role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

// What ranks of a role found wrong with their own arguments.
std::vector<std::string> own_problems(const HubRole& role) {
  std::vector<std::string> found;
  for (const auto& [rank, member] : role.members) {
    if (!member->question || !member->question->contains("problems")) continue;
    for (const Json& problem : member->question->at("problems"))
      found.push_back(problem.get<std::string>() + " (" + to_string(member->claim) + ")");
  }
  return found;
}

std::string all_after_semicolons(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text;
}

// A subscriber that asks has to declare again what did not fit.
void drop_if_asking(HubRole& role) {
  if (role.all_ask("subscribe")) role.model = std::nullopt;
}

}  // namespace

// Members and roles know one another.
LinkRegistry::~LinkRegistry() {
  for (const SharedRole& role : roles_) role->members.clear();
  for (const SharedRole& role : ended_) role->members.clear();
}

// Coming and going.

SharedRole LinkRegistry::role_named(const std::string& name) const {
  const auto found =
      std::find_if(roles_.begin(), roles_.end(), [&](const auto& role) { return role->name == name; });
  return found == roles_.end() ? nullptr : *found;
}

SharedMember LinkRegistry::admit(const Claim& claim, std::function<void(const Json&)> answer) {
  SharedRole role = role_named(claim.role);
  if (role != nullptr) {
    check_place(*role, claim);
  } else {
    role = std::make_shared<HubRole>(HubRole{.name = claim.role, .size = claim.size});
    roles_.push_back(role);
  }
  const auto member =
      std::make_shared<HubMember>(HubMember{.claim = claim, .answer = std::move(answer), .role = role});
  role->members[claim.rank] = member;
  return member;
}

void LinkRegistry::check_place(const HubRole& role, const Claim& claim) {
  const Claim& other = role.members.begin()->second->claim;
  if (role.size != claim.size)
    refuse(to_string(claim) + " says that the role has " + std::to_string(claim.size) + " ranks, but " +
               to_string(other) + " said " + std::to_string(role.size),
           true);
  const auto holder = role.members.find(claim.rank);
  if (holder != role.members.end())
    refuse(to_string(claim) + " is taken by " + holder->second->claim.process +
               "; a second job needs another role",
           false);
  if (!claim.job.empty() && !other.job.empty() && claim.job != other.job)
    refuse(
        "role " + claim.role + " is taken by another job (" + to_string(other) + ", " + other.process + ")",
        false);
}

void LinkRegistry::refuse(const std::string& why, bool is_final) {
  note_refusal(why);
  throw NotAdmitted(why, is_final);
}

void LinkRegistry::note_refusal(const std::string& why) {
  if (std::find(refusals_.begin(), refusals_.end(), why) != refusals_.end()) return;
  refusals_.push_back(why);
  if (refusals_.size() > kMostRefusals) refusals_.erase(refusals_.begin());
}

void LinkRegistry::lose(const SharedMember& member, const std::string& why, bool is_leaving) {
  const SharedRole role = member->role;
  const std::string what = to_string(member->claim) + " " + why;
  if (role->ended.empty()) end(role, member, what, is_leaving);
  const auto found = role->members.find(member->claim.rank);
  if (found != role->members.end() && found->second == member) role->members.erase(found);
  if (role->members.empty()) std::erase(ended_, role);
  if (!transfer_) return;
  const auto& waiting = transfer_->waiting;
  if (std::find(waiting.begin(), waiting.end(), member) == waiting.end()) return;
  meeting_.close();
  report(member, what);
}

void LinkRegistry::end(const SharedRole& role, const SharedMember& member, const std::string& what,
                       bool is_leaving) {
  role->ended = what;
  std::erase(roles_, role);
  ended_.push_back(role);
  role->members.erase(member->claim.rank);
  for (const auto& [rank, other] : role->members) {
    if (other->asks_with_its_role()) other->reply(closed(role->ended));
  }
  if (is_among(partners_, role)) break_up();
  if (role == source_) {
    lose_source(role->name, what);
  } else if (role->is_agreed && source_ != nullptr) {
    lose_target(role, what, is_leaving);
  }
}

void LinkRegistry::lose_source(const std::string& gone, const std::string& what) {
  source_ = nullptr;
  awaited_.clear();
  for (const SharedRole& role : subscribers()) {
    role->is_agreed = false;
    role->tell(lost({gone}, "the publisher is gone: " + what));
  }
}

void LinkRegistry::lose_target(const SharedRole& role, const std::string& what, bool is_leaving) {
  std::erase(awaited_, role);
  if (!is_leaving) {
    awaited_.clear();
    source_->tell(lost({role->name}, "a subscriber is gone: " + what));
  }
  begin_transfer();
}

// Questions.

void LinkRegistry::hear(const SharedMember& member, const Json& question) {
  const std::string what = text_in(question, "do");
  if (what == "leave") return lose(member, "left the link", true);
  if (what == "withdraw") return withdraw(member);
  member->question = question;
  if (question.contains("version")) version_ = std::max(version_, integer_in(question, "version"));
  if (!generation_.empty() && text_or(question, "failed", "") == generation_) break_up();
  if (what == "done") return report(member, "");
  if (what == "failed") return report(member, to_string(member->claim) + ": " + text_in(question, "why"));
  if (!member->role->ended.empty()) return member->reply(closed(member->role->ended));
  if (what == "publish" || what == "subscribe") member->news.clear();  // what is declared is compared anew
  if (!member->news.empty()) return member->reply(all_news(std::exchange(member->news, {})));
  advance(member->role);
}

// It has waited for too long. If its answer is on its way already, that counts.
void LinkRegistry::withdraw(const SharedMember& member) {
  if (member->reports() && transfer_) {
    const auto waiting = transfer_->waiting;
    for (const SharedMember& late : waiting)
      report(late, to_string(late->claim) + " did not report within the timeout");
  } else if (member->question) {
    awaited_.clear();
    const Json answer = {{"is", "late"}, {"why", whom_it_waits_for(*member->role, member->asks())}};
    for (const auto& [rank, other] : member->role->members) {
      if (other->question) other->reply(answer);
    }
  }
}

std::string LinkRegistry::whom_it_waits_for(const HubRole& role, const std::string& what) const {
  const std::string missing = role.missing(what);
  if (what == "join") return missing + " did not connect" + seen_refusals();
  return missing.empty() ? why_idle(what) : missing + " did not call " + what;
}

std::string LinkRegistry::seen_refusals() const {
  return refusals_.empty() ? "" : "; refused meanwhile: " + all_after_semicolons(refusals_);
}

std::string LinkRegistry::why_idle(const std::string& what) const {
  if (what == "send") {
    const auto waiting = subscribers();
    if (waiting.empty()) return "no job subscribed" + seen_refusals();
    std::string text;
    for (const SharedRole& role : waiting) {
      const std::string missing = role->missing("receive");
      if (!missing.empty()) text += (text.empty() ? "" : " and ") + missing;
    }
    return text + " did not call receive";
  }
  if (source_ == nullptr) return "no job published" + seen_refusals();
  return source_->missing("send") + " did not call send";
}

void LinkRegistry::advance(const SharedRole& role) {
  const auto& members = role->members;
  if (!role->is_whole() ||
      std::any_of(members.begin(), members.end(), [](const auto& one) { return !one.second->question; }))
    return;
  std::set<std::string> asked;
  std::string calls;
  for (const auto& [rank, member] : members) {
    asked.insert(member->asks());
    calls += (calls.empty() ? "rank " : ", rank ") + std::to_string(rank) + " called " + member->asks();
  }
  if (asked.size() > 1) return role->reply(refusal("the ranks of role " + role->name + " differ: " + calls));
  const std::string& what = *asked.begin();
  if (what == "join") return role->reply({{"is", "joined"}});
  if (what == "publish") return publish(role);
  if (what == "subscribe") return subscribe(role);
  exchange(role, what);
}

// Declarations.

std::vector<SharedRole> LinkRegistry::subscribers() const {
  std::vector<SharedRole> found;
  for (const SharedRole& role : roles_) {
    if (role->is_agreed) found.push_back(role);
  }
  return found;
}

// Takes the model that all ranks of a role declared. Returns the problems in it.
std::vector<std::string> LinkRegistry::declare(HubRole& role) {
  std::map<int64_t, const Json*> said;
  for (const auto& [rank, member] : role.members) {
    said[rank] = &*member->question;
    version_ = std::max(version_, integer_in(*member->question, "version"));
  }
  PutTogether made = put_together(role.name, role.size, said);
  role.model = std::move(made.model);
  return std::move(made.problems);
}

void LinkRegistry::publish(const SharedRole& role) {
  if (source_ != nullptr && source_ != role)
    return role->reply(
        refusal("role " + source_->name + " publishes on this link, so role " + role->name + " cannot"));
  std::vector<std::string> lines = declare(*role);
  const bool is_wrong_itself = !lines.empty();
  std::vector<SharedRole> subscribed;
  std::vector<SharedRole> unlike;
  for (const SharedRole& other : roles_) {
    if (other == role || !other->model) continue;
    subscribed.push_back(other);
    const auto some = differences(*role->model, *other->model);
    if (is_wrong_itself || !some.empty()) unlike.push_back(other);
    lines.insert(lines.end(), some.begin(), some.end());
  }
  break_up();
  if (!lines.empty()) {
    for (const SharedRole& other : subscribed) other->is_agreed = false;
    return refuse_model(role, unlike, told("what role " + role->name + " publishes", lines));
  }
  source_ = role;
  role->reply({{"is", "published"}, {"version", version_}});
  for (const SharedRole& other : subscribed) agree(*other);
}

void LinkRegistry::refuse_model(const SharedRole& role, const std::vector<SharedRole>& unlike,
                                const std::string& why) {
  source_ = nullptr;
  role->model = std::nullopt;
  for (const SharedRole& other : unlike) {
    drop_if_asking(*other);
    other->tell(refusal(why));
  }
  role->reply(refusal(why));
}

void LinkRegistry::subscribe(const SharedRole& role) {
  if (role == source_)
    return role->reply(refusal("role " + role->name + " publishes on this link, so it cannot subscribe"));
  std::vector<std::string> lines = declare(*role);
  if (source_ == nullptr && lines.empty()) return;  // until somebody publishes
  if (source_ != nullptr && source_->model) {
    const auto unlike = differences(*source_->model, *role->model);
    lines.insert(lines.end(), unlike.begin(), unlike.end());
  }
  if (lines.empty()) return agree(*role);
  role->model = std::nullopt;
  role->is_agreed = false;
  const Json answer = refusal(told("what role " + role->name + " subscribes to", lines));
  if (source_ != nullptr) source_->tell(answer);
  role->reply(answer);
}

void LinkRegistry::agree(HubRole& role) {
  role.is_agreed = true;
  break_up();
  if (role.all_ask("subscribe")) role.reply({{"is", "subscribed"}, {"version", version_}});
  begin_transfer();
}

// Transfers.

void LinkRegistry::exchange(const SharedRole& role, const std::string& what) {
  const auto problems = own_problems(*role);
  if (!problems.empty())
    return role->reply(refusal(told("what role " + role->name + " " + what + "s", problems)));
  if (what == "send" && role != source_)
    return role->reply(refusal("role " + role->name + " has not published"));
  if (what == "receive" && !role->model)
    return role->reply(refusal("role " + role->name + " has not subscribed"));
  begin_transfer();
}

// When the publisher sends, and all that it waits for receive: those that were subscribed as it began.
void LinkRegistry::begin_transfer() {
  if (source_ == nullptr || transfer_ || !source_->all_ask("send")) return;
  if (awaited_.empty()) awaited_ = subscribers();
  if (awaited_.empty() || !std::all_of(awaited_.begin(), awaited_.end(),
                                       [](const SharedRole& role) { return role->all_ask("receive"); }))
    return;
  const std::vector<SharedRole> targets = std::exchange(awaited_, {});
  std::vector<SharedRole> roles = {source_};
  roles.insert(roles.end(), targets.begin(), targets.end());
  if (partners_ != roles) {
    place_ = meeting_.open();
    generation_ = fresh_nonce();
    partners_ = roles;
  }
  ++version_;
  const auto members = holder_last(roles);
  transfer_ = HubTransfer{.version = version_, .source = source_, .targets = targets, .waiting = members};
  for (const SharedMember& member : members) {
    Json go = {{"is", "go"}, {"version", version_}, {"generation", generation_}};
    if (member->generation != generation_) {
      member->generation = generation_;
      go["roster"] = roster(roles);
    }
    member->reply(go);
  }
}

// The next version needs another joint group. Ranks of the last one may be about to move it alone.
void LinkRegistry::break_up() {
  for (const SharedRole& role : std::exchange(partners_, {})) {
    for (const auto& [rank, member] : role->members) member->nudge();
  }
}

// The publisher comes first.
Json LinkRegistry::roster(const std::vector<SharedRole>& roles) const {
  Json listed = Json::array();
  Json models = Json::object();
  for (const SharedRole& role : roles) {
    listed.push_back(Json::array({role->name, role->size}));
    if (role->model) models[role->name] = role->model->said();
  }
  return {{"store", {{"meeting", place_}}},
          {"source", roles.front()->name},
          {"roles", listed},
          {"models", models}};
}

void LinkRegistry::report(const SharedMember& member, const std::string& failure) {
  const bool is_waited_for = transfer_ && std::erase(transfer_->waiting, member) > 0;
  if (!is_waited_for) return member->reply(torn({}, "that transfer is over"));
  if (!failure.empty()) transfer_->failures.push_back({.member = member, .why = failure});
  if (!transfer_->waiting.empty()) return;
  const HubTransfer transfer = *std::exchange(transfer_, std::nullopt);
  conclude(transfer);
}

void LinkRegistry::conclude(const HubTransfer& transfer) {
  if (!transfer.failures.empty()) break_up();
  const Json failure = torn(transfer.gone(), "version " + std::to_string(transfer.version) +
                                                 " did not arrive whole: " + transfer.causes());
  // If somebody came meanwhile, the ranks must ask for the next version: a nudge was lost on those that
  // reported.
  const bool may_go_on_alone = transfer.failures.empty() && !partners_.empty();
  const Json complete = {{"is", "complete"}, {"version", transfer.version}, {"everywhere", may_go_on_alone}};
  std::vector<SharedRole> roles = {transfer.source};
  roles.insert(roles.end(), transfer.targets.begin(), transfer.targets.end());
  for (const SharedMember& member : holder_last(roles)) {
    const bool is_torn = transfer.is_torn_for(member->role);
    if (is_torn) member->news.clear();  // it is told here
    if (member->reports()) member->reply(is_torn ? failure : complete);
  }
}

// The process that holds the link may end as soon as it has its answer, and this thread with it.
std::vector<SharedMember> LinkRegistry::holder_last(const std::vector<SharedRole>& roles) const {
  std::vector<SharedMember> members;
  for (const SharedRole& role : roles) {
    for (const auto& [rank, member] : role->members) members.push_back(member);
  }
  std::stable_partition(members.begin(), members.end(),
                        [&](const auto& member) { return !is_holder(*member); });
  return members;
}

bool LinkRegistry::is_holder(const HubMember& member) const { return member.claim == holder_; }

Json LinkRegistry::farewell(HubMember& member) const {
  const auto& members = member.role->members;
  const bool is_of_holder = std::any_of(members.begin(), members.end(),
                                        [&](const auto& other) { return is_holder(*other.second); });
  if (!member.role->ended.empty()) return closed(member.role->ended);
  if (is_of_holder) return closed(to_string(holder_) + " left the link");
  if (source_ != nullptr && source_->name == holder_.role && member.role->is_agreed)
    member.news.push_back(
        lost({holder_.role}, "the publisher is gone: " + to_string(holder_) + " left the link"));
  return member.news.empty() ? Json{{"is", "moved"}} : all_news(member.news);
}

}  // namespace shardway::link
