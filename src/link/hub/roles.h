// The parts of a registry: members, roles, transfers, and what a member is answered.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "link/hub/declared_model.h"
#include "link/talk/claim.h"

namespace shardway::link {

struct HubRole;

struct HubMember {
  Claim claim;
  std::function<void(const Json&)> answer;
  std::shared_ptr<HubRole> role;
  std::optional<Json> question = std::nullopt;
  std::vector<Json> news = {};  // what it should hear while it asks nothing: the answer to its next question
  std::string generation = {};  // of the last roster that it got

  std::string asks() const;  // the question's name; empty without one
  bool asks_with_its_role() const;
  bool reports() const;
  void reply(const Json& message);
  void tell(const Json& message);

  // Its next call has to ask, and not to go on with the others alone.
  void nudge() const;
};

using SharedMember = std::shared_ptr<HubMember>;

struct HubRole {
  std::string name;
  int64_t size = 0;
  std::map<int64_t, SharedMember> members = {};
  std::optional<DeclaredModel> model = std::nullopt;
  bool is_agreed = false;  // a subscriber that the publisher's model fits
  std::string ended = {};  // why; a role ends with its first member

  bool all_ask(const std::string& what) const;
  bool is_whole() const { return static_cast<int64_t>(members.size()) == size; }
  void reply(const Json& message) const;
  void tell(const Json& message) const;

  // The ranks that do not ask this; empty if all do.
  std::string missing(const std::string& what) const;
};

using SharedRole = std::shared_ptr<HubRole>;

struct HubTransfer {
  struct Failure {
    SharedMember member;
    std::string why;
  };

  int64_t version = 0;
  SharedRole source;
  std::vector<SharedRole> targets;
  std::vector<SharedMember> waiting;  // those that have not reported
  std::vector<Failure> failures = {};

  // A subscriber has its version if all its own ranks have; a publisher, if all have.
  bool is_torn_for(const SharedRole& role) const;
  std::vector<std::string> gone() const;  // roles
  std::string causes() const;
};

Json all_news(const std::vector<Json>& news);
Json lost(const std::vector<std::string>& gone, const std::string& why);
Json refusal(const std::string& why);
Json torn(const std::vector<std::string>& gone, const std::string& why);
Json closed(const std::string& why);

}  // namespace shardway::link
