#include "link/hub/roles.h"

#include <algorithm>
#include <set>

#include "link/talk/wire.h"

namespace shardway::link {

std::string HubMember::asks() const { return question ? text_or(*question, "do", "") : ""; }

bool HubMember::asks_with_its_role() const {
  const std::string what = asks();
  return what == "join" || what == "publish" || what == "subscribe" || what == "send" || what == "receive";
}

bool HubMember::reports() const { return asks() == "done" || asks() == "failed"; }

void HubMember::reply(const Json& message) {
  question = std::nullopt;
  answer(message);
}

void HubMember::tell(const Json& message) {
  if (asks_with_its_role()) return reply(message);
  news.push_back(message);
  nudge();
}

void HubMember::nudge() const {
  if (!question) answer({{"is", "nudge"}});
}

bool HubRole::all_ask(const std::string& what) const {
  return is_whole() && std::all_of(members.begin(), members.end(),
                                   [&](const auto& member) { return member.second->asks() == what; });
}

void HubRole::reply(const Json& message) const {
  for (const auto& [rank, member] : members) member->reply(message);
}

void HubRole::tell(const Json& message) const {
  for (const auto& [rank, member] : members) member->tell(message);
}

std::string HubRole::missing(const std::string& what) const {
  std::vector<int64_t> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    const auto found = members.find(rank);
    if (found == members.end() || found->second->asks() != what) ranks.push_back(rank);
  }
  return ranks.empty() ? "" : ranks_text(name, ranks);
}

bool HubTransfer::is_torn_for(const SharedRole& role) const {
  return std::any_of(failures.begin(), failures.end(),
                     [&](const Failure& one) { return role == source || one.member->role == role; });
}

std::vector<std::string> HubTransfer::gone() const {
  std::set<std::string> names;
  for (const auto& [member, why] : failures) {
    if (!member->role->ended.empty()) names.insert(member->role->name);
  }
  return {names.begin(), names.end()};
}

// Those who are gone come first: the others failed for it.
std::string HubTransfer::causes() const {
  const bool are_some_gone =
      std::any_of(failures.begin(), failures.end(), [](const Failure& one) { return !one.member->question; });
  std::vector<std::string> told;
  for (const auto& [member, why] : failures) {
    if (are_some_gone && member->question) continue;
    if (std::find(told.begin(), told.end(), why) == told.end()) told.push_back(why);
  }
  std::string text;
  for (const std::string& why : told) text += (text.empty() ? "" : "; ") + why;
  return text;
}

Json all_news(const std::vector<Json>& news) {
  std::set<std::string> gone;
  std::string why;
  for (const Json& one : news) {
    if (one.contains("gone")) gone.merge(one.at("gone").get<std::set<std::string>>());
    why += (why.empty() ? "" : "; ") + text_in(one, "why");
  }
  return gone.empty() ? refusal(why) : lost({gone.begin(), gone.end()}, why);
}

Json lost(const std::vector<std::string>& gone, const std::string& why) {
  return {{"is", "lost"}, {"gone", gone}, {"why", why}};
}

Json refusal(const std::string& why) { return {{"is", "refused"}, {"why", why}}; }

Json torn(const std::vector<std::string>& gone, const std::string& why) {
  return {{"is", "torn"}, {"gone", gone}, {"why", why}};
}

Json closed(const std::string& why) {
  return {{"is", "closed"}, {"why", why + ": this job has to connect again"}};
}

}  // namespace shardway::link
