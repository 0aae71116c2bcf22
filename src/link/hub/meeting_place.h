// Where the ranks of a joint group meet: keys and values that the process that holds the link keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/text/json.h"

namespace shardway::link {

// A rank that has come. A question gets one answer, maybe late.
struct MeetingVisitor {
  std::function<void(const Json&)> answer;
  std::function<void()> dismiss;
  std::vector<std::string> awaited = {};  // keys
};

// One place per group. Whoever waits in a place that is closed is dismissed at once.
class MeetingPlace {
 public:
  // A new place, which ends the one before. Returns its name.
  const std::string& open();
  void close();

  bool admits(const Json& name) const;
  void enter(std::shared_ptr<MeetingVisitor> visitor) { visitors_.push_back(std::move(visitor)); }
  void leave(const std::shared_ptr<MeetingVisitor>& visitor) { std::erase(visitors_, visitor); }

  // Throws NotOurs or Json::exception if the question is invalid.
  void hear(MeetingVisitor& visitor, const Json& question);

 private:
  using Bytes = std::vector<uint8_t>;

  Json done(const std::string& what, const Json& question);
  Json add(const std::string& key, int64_t count);
  Json swap(const std::string& key, const Bytes& expected, const Bytes& value);
  bool are_there(const std::vector<std::string>& keys) const;
  void put(const std::string& key, Bytes value);
  void answer_if_there(MeetingVisitor& visitor) const;

  std::string name_;
  std::map<std::string, Bytes> values_;
  std::vector<std::shared_ptr<MeetingVisitor>> visitors_;
};

}  // namespace shardway::link
