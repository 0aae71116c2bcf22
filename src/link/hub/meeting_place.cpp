#include "link/hub/meeting_place.h"

#include <algorithm>

#include "link/talk/base64.h"
#include "link/talk/secret.h"
#include "link/talk/wire.h"

namespace shardway::link {

const std::string& MeetingPlace::open() {
  close();
  name_ = fresh_nonce();
  return name_;
}

void MeetingPlace::close() {
  const auto visitors = std::exchange(visitors_, {});
  name_.clear();
  values_.clear();
  for (const auto& visitor : visitors) visitor->dismiss();
}

bool MeetingPlace::admits(const Json& name) const {
  return !name_.empty() && name.is_string() && name.get<std::string>() == name_;
}

void MeetingPlace::hear(MeetingVisitor& visitor, const Json& question) {
  const std::string what = text_in(question, "do");
  if (what == "withdraw") {
    if (visitor.awaited.empty()) return;
    visitor.awaited.clear();
    visitor.answer({{"is", "late"}});
  } else if (what == "wait") {
    visitor.awaited = question.at("keys").get<std::vector<std::string>>();
    answer_if_there(visitor);
  } else {
    Json answer = {{"is", "done"}};
    answer.update(done(what, question));
    visitor.answer(answer);
  }
}

Json MeetingPlace::done(const std::string& what, const Json& question) {
  if (what == "check") return {{"are_there", are_there(question.at("keys").get<std::vector<std::string>>())}};
  if (what == "count") return {{"count", values_.size()}};
  const std::string key = text_in(question, "key");
  const auto value = [&](const char* name) { return bytes_of_base64(text_in(question, name)); };
  if (what == "get")
    return values_.contains(key) ? Json{{"value", base64_of(values_.at(key))}} : Json::object();
  if (what == "delete") return {{"was_there", values_.erase(key) > 0}};
  if (what == "add") return add(key, integer_in(question, "count"));
  if (what == "swap") return swap(key, value("expected"), value("value"));
  if (what != "set") throw NotOurs("a store has no " + what);
  put(key, value("value"));
  return Json::object();
}

Json MeetingPlace::add(const std::string& key, int64_t count) {
  const auto found = values_.find(key);
  if (found != values_.end()) count += std::stoll(std::string(found->second.begin(), found->second.end()));
  const std::string text = std::to_string(count);
  put(key, {text.begin(), text.end()});
  return {{"count", count}};
}

// As torch's stores do it: a key that is not there is set if nothing is expected.
Json MeetingPlace::swap(const std::string& key, const Bytes& expected, const Bytes& value) {
  const auto found = values_.find(key);
  const bool is_absent = found == values_.end();
  if (is_absent && !expected.empty()) return {{"value", base64_of(expected)}};
  if (is_absent || found->second == expected) put(key, value);
  return {{"value", base64_of(values_.at(key))}};
}

bool MeetingPlace::are_there(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const auto& key) { return values_.contains(key); });
}

void MeetingPlace::put(const std::string& key, Bytes value) {
  values_[key] = std::move(value);
  const auto visitors = visitors_;
  for (const auto& visitor : visitors) {
    const auto& awaited = visitor->awaited;
    if (std::find(awaited.begin(), awaited.end(), key) != awaited.end()) answer_if_there(*visitor);
  }
}

void MeetingPlace::answer_if_there(MeetingVisitor& visitor) const {
  if (!are_there(visitor.awaited)) return;
  visitor.awaited.clear();
  visitor.answer({{"is", "done"}});
}

}  // namespace shardway::link
