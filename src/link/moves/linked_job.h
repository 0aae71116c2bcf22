// A link between jobs, as one of its ranks holds it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "link/hub/membership.h"
#include "link/moves/held_versions.h"
#include "link/moves/joint_group.h"

namespace shardway::link {

// The text of an error, without a stack.
std::string told(const std::exception& error);

// One thread at a time may use it: the one that sends versions without waiting while there are any, else the
// caller's. Errors are those that shardway/link.h names.
class LinkedJob {
 public:
  // Collective over the role.
  LinkedJob(LinkAddress address, Claim claim, std::string secret, std::chrono::milliseconds timeout);
  ~LinkedJob();
  LinkedJob(const LinkedJob&) = delete;
  LinkedJob& operator=(const LinkedJob&) = delete;

  const Claim& claim() const { return membership_.claim(); }
  std::chrono::milliseconds timeout() const { return timeout_; }
  std::string explain() const;

  // Throws what went wrong with a version that was sent without waiting.
  void close();

  // As if this process had died: without a word. The others are told that it is lost.
  void leave_as_lost();

  // What a thread of `owner` sends for this job. The job waits for it before it leaves, or does anything else
  // than send, and keeps the owner until then.
  void send_by(std::shared_ptr<HeldVersions> held, std::shared_ptr<void> owner);

  // Returns when all of that is sent. Throws what went wrong.
  void finish_sending() const;

  // The last version that this rank has had, sent or received.
  int64_t version() const { return version_; }
  int64_t note_version(int64_t version);

  // Tells the hub, and says it again to the next hub, should this one be lost. Returns the link's version.
  int64_t declare(Json declaration);

  // Returns the answer to a question of this role's ranks. Throws what the hub has to say instead, in the
  // name of `call`.
  Json ask(const std::string& call, const Json& question, Instant deadline);
  Instant deadline() const { return Instant::clock::now() + timeout_; }

  // Collective, if the hub's answer names another group than the last.
  std::shared_ptr<JointGroup> joint_group(const Json& go);

  // The joint group, if its ranks move the next version without the hub. Either on all ranks or on none.
  std::shared_ptr<JointGroup> quick_group(const std::string& call) const;

  // Whether the hub has said something unasked: somebody has come or gone.
  bool has_news() const;
  void leave_joint_group();

 private:
  void stop_sending();
  Json asked(const std::string& call, const Json& question, Instant deadline);
  void find_hub(const std::string& call, Instant deadline);
  void join(Instant deadline);
  void check_open(const std::string& call) const;
  Json judged(const std::string& call, Json answer);
  [[noreturn]] void lose_hub(const std::string& call, const HubGone& gone);
  std::string hub_role() const;  // empty without a hub
  std::string waited() const;
  [[noreturn]] void raise_loss(const std::string& call, const std::string& why) const;
  [[noreturn]] void raise_mistake(const std::string& call, const std::string& why) const;

  Membership membership_;
  std::chrono::milliseconds timeout_;
  int64_t process_;
  std::optional<Json> declaration_;
  std::shared_ptr<HubConnection> declared_to_;
  std::shared_ptr<JointGroup> joint_;
  std::mutex changing_;                 // held to change `joint_`, and by another thread to read it
  std::shared_ptr<HeldVersions> held_;  // null if nothing is sent without waiting
  std::shared_ptr<void> sender_;
  int64_t version_ = 0;
  std::vector<std::string> told_of_;  // roles whose loss was raised, since the last transfer
  std::string ended_;
};

}  // namespace shardway::link
