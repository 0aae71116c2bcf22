// Who is on a link, what they declared, and whose turn it is. One thread of the process that holds the link
// runs it.
//
// A member asks and gets one answer, maybe late: calls are collective over a role, so a question waits for
// those of the role's other ranks. What a member should hear while it asks nothing is kept, and answers its
// next question.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "link/hub/meeting_place.h"
#include "link/hub/roles.h"

namespace shardway::link {

class LinkRegistry {
 public:
  // `holder`: the process in which this is.
  explicit LinkRegistry(Claim holder) : holder_(std::move(holder)) {}
  ~LinkRegistry();
  LinkRegistry(const LinkRegistry&) = delete;
  LinkRegistry& operator=(const LinkRegistry&) = delete;

  MeetingPlace& meeting() { return meeting_; }

  // Throws NotAdmitted.
  SharedMember admit(const Claim& claim, std::function<void(const Json&)> answer);

  // For the errors of those who wait in vain.
  void note_refusal(const std::string& why);

  // Throws NotOurs or Json::exception if the question is invalid.
  void hear(const SharedMember& member, const Json& question);

  // `why`: what became of it, such as "died".
  void lose(const SharedMember& member, const std::string& why, bool is_leaving = false);

  // What a member hears last, when this process leaves the link: what it has not heard yet, or to look for
  // who holds the link next.
  Json farewell(HubMember& member) const;

 private:
  SharedRole role_named(const std::string& name) const;  // null if there is none
  void check_place(const HubRole& role, const Claim& claim);
  [[noreturn]] void refuse(const std::string& why, bool is_final);
  void end(const SharedRole& role, const SharedMember& member, const std::string& what, bool is_leaving);
  void lose_source(const std::string& gone, const std::string& what);
  void lose_target(const SharedRole& role, const std::string& what, bool is_leaving);

  void withdraw(const SharedMember& member);
  std::string whom_it_waits_for(const HubRole& role, const std::string& what) const;
  std::string why_idle(const std::string& what) const;
  std::string seen_refusals() const;
  void advance(const SharedRole& role);

  std::vector<SharedRole> subscribers() const;
  std::vector<std::string> declare(HubRole& role);
  void publish(const SharedRole& role);
  void refuse_model(const SharedRole& role, const std::vector<SharedRole>& unlike, const std::string& why);
  void subscribe(const SharedRole& role);
  void agree(HubRole& role);

  void exchange(const SharedRole& role, const std::string& what);
  void begin_transfer();
  void break_up();
  Json roster(const std::vector<SharedRole>& roles) const;
  void report(const SharedMember& member, const std::string& failure);
  void conclude(const HubTransfer& transfer);
  std::vector<SharedMember> holder_last(const std::vector<SharedRole>& roles) const;
  bool is_holder(const HubMember& member) const;

  Claim holder_;
  MeetingPlace meeting_;
  std::string place_;              // the meeting's name
  std::vector<SharedRole> roles_;  // in the order in which they came
  std::vector<SharedRole> ended_;  // with members that are still there
  SharedRole source_;
  std::vector<SharedRole> awaited_;  // those that the publisher's send waits for
  std::optional<HubTransfer> transfer_;
  int64_t version_ = 0;
  std::string generation_;            // of the last joint group; no two groups of a link have the same
  std::vector<SharedRole> partners_;  // of the last joint group; empty: make another
  std::vector<std::string> refusals_;
};

}  // namespace shardway::link
