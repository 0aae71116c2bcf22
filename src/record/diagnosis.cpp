#include "record/diagnosis.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace shardway::record {
namespace {

// A forged record may claim any size: ranks that nobody has a record of are listed up to here.
constexpr int64_t kMostListed = 4096;

struct GroupKey {
  uint64_t id = 0;
  int64_t size = 1;

  auto operator<=>(const GroupKey&) const = default;
};

GroupKey key_of(const RecordedCall& call) { return {.id = call.group, .size = call.size}; }

// The newest call of a rank of this group. Records of one process may hold several ranks, which are threads.
const RecordedCall* newest_of(const ProcessRecord& record, GroupKey key, int64_t rank) {
  const auto is_it = [&](const RecordedCall& call) { return key_of(call) == key && call.rank == rank; };
  const auto found = std::find_if(record.calls.rbegin(), record.calls.rend(), is_it);
  return found == record.calls.rend() ? nullptr : &*found;
}

bool is_in(const ProcessRecord& record, GroupKey key) {
  return std::any_of(record.calls.begin(), record.calls.end(),
                     [&](const RecordedCall& call) { return key_of(call) == key; });
}

std::optional<RecordedCall> running_elsewhere(const ProcessRecord& record, GroupKey key) {
  for (auto call = record.calls.rbegin(); call != record.calls.rend(); ++call) {
    if (call->state == CallState::running && key_of(*call) != key) return *call;
  }
  return std::nullopt;
}

// The process of this rank: one that has called in the group as this rank, or else the one that the member
// names, or, in a group of the whole job, the one with the same rank in the job.
const ProcessRecord* process_of(GroupKey key, int64_t rank, std::span<const ProcessRecord> records,
                                const Member* member) {
  for (const ProcessRecord& record : records) {
    if (newest_of(record, key, rank) != nullptr) return &record;
  }
  const auto has_pid = [&](const ProcessRecord& record) { return record.pid == member->pid; };
  if (member != nullptr) {
    const auto found = std::find_if(records.begin(), records.end(), has_pid);
    return found == records.end() ? nullptr : &*found;
  }
  const ProcessRecord* namesake = nullptr;
  std::set<std::string> jobs;  // of the processes that are in the group
  for (const ProcessRecord& record : records) {
    if (record.is_of_job && is_in(record, key)) jobs.insert(record.job);
  }
  for (const ProcessRecord& record : records) {
    const bool is_alike = record.is_of_job && record.size == key.size && record.rank == rank;
    if (is_alike && jobs.contains(record.job) && !is_in(record, key)) namesake = &record;
  }
  return namesake;
}

Standing standing_of(GroupKey key, int64_t rank, std::span<const ProcessRecord> records,
                     const Member* member) {
  Standing standing{.rank = rank};
  if (member != nullptr) {
    standing.pid = member->pid;
    standing.process = member->process;
    standing.number = member->number;
    standing.gave_up = member->gave_up;
  }
  const ProcessRecord* record = process_of(key, rank, records, member);
  if (record == nullptr) return standing;
  standing.has_record = true;
  standing.pid = record->pid;
  standing.process = record->state;
  if (record->is_of_job) standing.job_rank = record->rank;
  standing.elsewhere = running_elsewhere(*record, key);
  if (const RecordedCall* newest = newest_of(*record, key, rank)) {
    standing.call = *newest;
    standing.number = std::max(standing.number, newest->number);
  }
  return standing;
}

// The op that most ranks called at each number.
std::map<uint64_t, std::string> usual_ops(GroupKey key, std::span<const ProcessRecord> records) {
  std::map<uint64_t, std::map<std::string, int64_t>> counts;
  for (const ProcessRecord& record : records) {
    for (const RecordedCall& call : record.calls) {
      if (key_of(call) == key) ++counts[call.number][call.op];
    }
  }
  std::map<uint64_t, std::string> usual;
  for (const auto& [number, ops] : counts) {
    usual[number] = std::max_element(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
                      return a.second < b.second;
                    })->first;
  }
  return usual;
}

// Whether one of the processes is no rank of the group, and so may be any that is missing: a record forgets.
bool has_stranger(const GroupView& view, std::span<const ProcessRecord> records) {
  return std::any_of(records.begin(), records.end(), [&](const ProcessRecord& record) {
    const auto is_it = [&](const Standing& standing) { return standing.pid == record.pid; };
    return std::none_of(view.ranks.begin(), view.ranks.end(), is_it);
  });
}

bool may_span_hosts(GroupKey key, std::span<const ProcessRecord> records) {
  return std::any_of(records.begin(), records.end(), [&](const ProcessRecord& record) {
    return std::any_of(record.calls.begin(), record.calls.end(),
                       [&](const RecordedCall& call) { return key_of(call) == key && call.may_span_hosts; });
  });
}

// Of ranks that no record names, where nothing but the records is known.
void say_unknown(GroupView& view, GroupKey key, std::span<const ProcessRecord> records) {
  const bool spans = may_span_hosts(key, records);
  if (!spans && !has_stranger(view, records)) return;
  for (Standing& standing : view.ranks) {
    if (standing.pid != 0) continue;
    standing.process = ProcessState::unknown;
    if (spans) standing.host = RankHost::unknown;
  }
}

// Sets of what belongs together. Following the parents leads to the first of a set.
class Unions {
 public:
  explicit Unions(size_t count) : parents_(count) { std::iota(parents_.begin(), parents_.end(), size_t{0}); }

  size_t first_of(size_t i) const {
    while (parents_[i] != i) i = parents_[i];
    return i;
  }

  void join(size_t a, size_t b) {
    const size_t first = first_of(a);
    const size_t second = first_of(b);
    parents_[std::max(first, second)] = std::min(first, second);
  }

 private:
  std::vector<size_t> parents_;
};

std::vector<GroupView> groups_of(const std::vector<ProcessRecord>& records) {
  std::map<GroupKey, int64_t> last_use;  // when the newest call of a group was begun
  std::set<GroupKey> under_way;
  for (const ProcessRecord& record : records) {
    for (const RecordedCall& call : record.calls) {
      int64_t& last = last_use[key_of(call)];
      last = std::max(last, call.begun_ns);
      if (call.state == CallState::running) under_way.insert(key_of(call));
    }
  }
  if (under_way.empty() && !last_use.empty()) {
    under_way.insert(std::max_element(last_use.begin(), last_use.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first);
  }
  std::vector<GroupView> views;
  for (const GroupKey& key : under_way) views.push_back(view_of_group(key.id, key.size, records));
  return views;
}

JobView job_of(std::span<const ProcessRecord> records, const std::vector<size_t>& members) {
  JobView job;
  std::vector<ProcessRecord> own;
  for (const size_t at : members) {
    const ProcessRecord& record = records[at];
    own.push_back(record);
    job.processes.push_back(&record);
    if (!record.is_of_job || !job.name.empty()) continue;
    job.name = record.job;
    job.launcher = record.launcher;
    job.size = record.size;
  }
  std::sort(job.processes.begin(), job.processes.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->rank, a->pid) < std::tuple(b->rank, b->pid);
  });
  job.groups = groups_of(own);
  return job;
}

// One finding for all ranks that are out of sight.
void say_elsewhere(const GroupView& group, std::vector<Finding>& findings) {
  std::string names;
  int64_t first = -1;
  for (const Standing& standing : group.ranks) {
    if (standing.host == RankHost::this_one) continue;
    if (first < 0) first = standing.rank;
    names += (names.empty() ? "" : ", ") + std::to_string(standing.rank);
  }
  if (first < 0) return;
  findings.push_back({.rank = first,
                      .text = "the ranks here wait for " + names + " of group " + group_text(group.id) +
                              ": on other hosts, where shardway status tells more, or ended"});
}

std::string name_of(const Standing& standing) {
  return "rank " + std::to_string(standing.job_rank.value_or(standing.rank));
}

}  // namespace

GroupView view_of_group(uint64_t id, int64_t size, std::span<const ProcessRecord> records,
                        std::span<const Member> members) {
  const GroupKey key{.id = id, .size = size};
  GroupView view{.id = id};
  for (int64_t rank = 0; rank < std::min(size, kMostListed); ++rank) {
    const auto at = static_cast<size_t>(rank);
    view.ranks.push_back(standing_of(key, rank, records, at < members.size() ? &members[at] : nullptr));
  }
  if (members.empty()) say_unknown(view, key, records);
  uint64_t newest = 0;
  for (const Standing& standing : view.ranks) newest = std::max(newest, standing.number);
  const std::map<uint64_t, std::string> usual = usual_ops(key, records);
  for (Standing& standing : view.ranks) {
    const bool is_known = standing.has_record || standing.number > 0 || !members.empty();
    if (is_known) standing.behind = newest - standing.number;
    const auto op = usual.find(standing.number);
    standing.differs = standing.call && standing.call->number == standing.number && op != usual.end() &&
                       op->second != standing.call->op;
  }
  return view;
}

std::vector<JobView> jobs_in(std::span<const ProcessRecord> records) {
  Unions jobs(records.size());
  std::map<std::string, size_t> by_name;
  std::map<GroupKey, size_t> by_group;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].is_of_job) jobs.join(i, by_name.emplace(records[i].job, i).first->second);
    for (const RecordedCall& call : records[i].calls)
      jobs.join(i, by_group.emplace(key_of(call), i).first->second);
  }
  std::map<size_t, std::vector<size_t>> members;
  for (size_t i = 0; i < records.size(); ++i) members[jobs.first_of(i)].push_back(i);
  std::vector<JobView> views;
  for (const auto& [first, of_job] : members) views.push_back(job_of(records, of_job));
  return views;
}

std::vector<Finding> findings_in(const GroupView& group, int64_t now, int64_t patience_ns) {
  std::vector<Finding> findings;
  const Standing* waiting = nullptr;  // the rank that has waited longest
  for (const Standing& standing : group.ranks) {
    const bool is_longer =
        standing.is_in_call() && (waiting == nullptr || standing.call->begun_ns < waiting->call->begun_ns);
    if (is_longer) waiting = &standing;
  }
  const bool is_late = waiting != nullptr && now - waiting->call->begun_ns > patience_ns;
  for (const Standing& standing : group.ranks) {
    if (standing.host != RankHost::this_one) continue;
    const bool is_missing = is_late && standing.process == ProcessState::unknown;
    const bool is_gone = is_missing || standing.process == ProcessState::ended;
    const bool is_stopped = standing.process == ProcessState::stopped;
    const bool is_waited_for = waiting != nullptr && (is_gone || is_stopped);
    if (!is_waited_for && !standing.differs && !(is_late && standing.behind > 0)) continue;
    std::string text = name_of(standing) + ": " + doing_text(standing, now);
    if (const std::string remarks = remarks_text(standing); !remarks.empty()) text += "; " + remarks;
    if (is_stopped) text += "; kill -CONT " + std::to_string(standing.pid) + " lets it go on";
    findings.push_back({.rank = standing.job_rank.value_or(standing.rank), .text = std::move(text)});
  }
  if (findings.empty() && is_late) say_elsewhere(group, findings);
  return findings;
}

}  // namespace shardway::record
