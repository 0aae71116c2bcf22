// What the records of several processes say together: who is in which call of a group, who is behind, who is
// gone. From plain structs to plain structs and to text; nothing here looks at the system.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "record/reader.h"
#include "record/recorded_call.h"

namespace shardway::record {

// Unknown: no record of this host names the rank, and the group may have ranks on other hosts.
enum class RankHost : uint8_t { this_one, unknown, another };

// One rank of a group.
struct Standing {
  int64_t rank = 0;                                // in the group
  std::optional<int64_t> job_rank = std::nullopt;  // in the job
  int64_t pid = 0;                                 // 0: no process is known
  ProcessState process = ProcessState::ended;
  RankHost host = RankHost::this_one;
  bool has_record = false;
  bool gave_up = false;                                  // as in Member
  uint64_t number = 0;                                   // of the newest call of the group that it has begun
  std::optional<RecordedCall> call = std::nullopt;       // that one, if the record still has it
  std::optional<RecordedCall> elsewhere = std::nullopt;  // a call of another group that it is in
  uint64_t behind = 0;                                   // calls that another rank has begun and it has not
  bool differs = false;                                  // most ranks called another op at this number

  bool is_in_call() const { return call && call->state == CallState::running; }
};

struct GroupView {
  uint64_t id = 0;
  std::vector<Standing> ranks = {};  // by rank
  std::string place = {};            // of a part of a group, whose ranks have their numbers in the whole
};

struct JobView {
  std::string name = {};  // empty: no launcher said one
  std::string launcher = {};
  int64_t size = 0;                                  // 0: unknown
  std::vector<const ProcessRecord*> processes = {};  // by rank, then by number
  std::vector<GroupView> groups = {};                // those with a call under way, or else the last used
};

// What a rank knows of a member of its group without a record: its process, and what its board says.
struct Member {
  int64_t pid = 0;  // 0: it has ended, or cannot be seen
  ProcessState process = ProcessState::running;
  uint64_t number = 0;   // of the newest call that it has entered
  bool gave_up = false;  // it told the others that the group is over
};

// `members` by rank. Without any, the records alone decide. Then a rank that no record names has ended,
// unless one of the records names no rank of this group, or the group may have ranks on other hosts.
GroupView view_of_group(uint64_t id, int64_t size, std::span<const ProcessRecord> records,
                        std::span<const Member> members = {});

// Processes are of one job if their launcher gave it the same name, or if they have a group in common. The
// views refer to the records.
std::vector<JobView> jobs_in(std::span<const ProcessRecord> records);

// What a person should look at. Empty if all is well: no rank waits longer than `patience_ns` for one that is
// behind, stopped or gone, and no two are in different ops. If only ranks of other hosts can be the reason of
// a long wait, one finding names them all.
struct Finding {
  int64_t rank = 0;  // in the job, or else in the group
  std::string text = {};
};
inline constexpr int64_t kPatienceNs = 5'000'000'000;
std::vector<Finding> findings_in(const GroupView& group, int64_t now, int64_t patience_ns = kPatienceNs);

// "1.5 s", "64 B", "3fa2c1".
std::string duration_text(int64_t ns);
std::string bytes_text(int64_t bytes);
std::string group_text(uint64_t id);

// "running", "done", "failed".
[[gnu::visibility("default")]] const char* name_of(CallState state);

// "group 3fa2c1 of 4 ranks", "group 3fa2c1 of 2 ranks on host 1 (node-b) of a group of 4 ranks".
std::string heading_of(const GroupView& group);

// "in all_gather_v for 2.1 s (call 17, 64 B)", "in no call for 12 s, last barrier (call 16)", …
std::string doing_text(const Standing& standing, int64_t now);

// "1 call behind, stopped", …; empty if there is nothing to remark.
std::string remarks_text(const Standing& standing);

// A heading and a line per rank, without the end of the last line.
std::string text_of(const GroupView& group, int64_t now);

}  // namespace shardway::record
