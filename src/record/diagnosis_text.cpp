#include <algorithm>
#include <array>
#include <cstdio>

#include "record/diagnosis.h"

namespace shardway::record {
namespace {

std::string with_unit(double value, const char* unit) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 10 ? "%.1f %s" : "%.0f %s", value, unit);
  return text.data();
}

std::string call_text(const RecordedCall& call) {
  return "(call " + std::to_string(call.number) + ", " + bytes_text(call.bytes) + ")";
}

std::string ended_text(const Standing& standing) {
  std::string text = standing.gave_up ? "it gave the group up, and has ended" : "its process has ended";
  if (standing.number > 0) text += ", after it had begun call " + std::to_string(standing.number);
  return text;
}

std::string last_text(const RecordedCall& call, int64_t now) {
  if (call.state == CallState::failed)
    return call.op + " failed " + duration_text(now - call.ended_ns) + " ago " + call_text(call);
  return "in no call for " + duration_text(now - call.ended_ns) + ", last " + call.op + " " + call_text(call);
}

}  // namespace

std::string duration_text(int64_t ns) {
  const double seconds = static_cast<double>(std::max(ns, int64_t{0})) / 1e9;
  if (seconds < 1) return std::to_string(static_cast<int64_t>(seconds * 1e3)) + " ms";
  if (seconds < 600) return with_unit(seconds, "s");
  return seconds < 36'000 ? with_unit(seconds / 60, "min") : with_unit(seconds / 3600, "h");
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024; ++unit) value /= 1024;
  return with_unit(value, kUnits.at(unit));
}

std::string group_text(uint64_t id) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%06x", static_cast<unsigned>(id >> 40));
  return text.data();
}

const char* name_of(CallState state) {
  constexpr std::array kNames = {"running", "done", "failed"};
  return kNames.at(static_cast<size_t>(state));
}

std::string heading_of(const GroupView& group) {
  const size_t count = group.ranks.size();
  return "group " + group_text(group.id) + " of " + std::to_string(count) +
         (count == 1 ? " rank" : " ranks") + (group.place.empty() ? "" : " on " + group.place);
}

std::string doing_text(const Standing& standing, int64_t now) {
  if (standing.host == RankHost::another) return "on another host";
  if (standing.host == RankHost::unknown) return "not found: it is on another host, or its process has ended";
  if (standing.process == ProcessState::ended) return ended_text(standing);
  if (standing.process == ProcessState::unknown)
    return "not found: its process has ended, or its last calls are all of other groups";
  if (!standing.has_record) return "keeping no record; it has begun call " + std::to_string(standing.number);
  if (standing.is_in_call())
    return "in " + standing.call->op + " for " + duration_text(now - standing.call->begun_ns) + " " +
           call_text(*standing.call);
  std::string text =
      standing.call ? last_text(*standing.call, now) : "in no call; none of its last is of this group";
  if (const auto& other = standing.elsewhere)
    text += "; in " + other->op + " of group " + group_text(other->group) + " for " +
            duration_text(now - other->begun_ns);
  return text;
}

std::string remarks_text(const Standing& standing) {
  std::string text;
  const auto add = [&](const std::string& remark) { text += (text.empty() ? "" : ", ") + remark; };
  if (standing.process == ProcessState::stopped) add("stopped");
  if (standing.behind > 0)
    add(std::to_string(standing.behind) + (standing.behind == 1 ? " call" : " calls") + " behind");
  if (standing.differs) add("not the op of the others");
  return text;
}

std::string text_of(const GroupView& group, int64_t now) {
  std::string text = heading_of(group);
  for (const Standing& standing : group.ranks) {
    text += "\n  rank " + std::to_string(standing.rank);
    const bool has_other_rank = standing.job_rank && *standing.job_rank != standing.rank;
    if (has_other_rank) text += " (" + std::to_string(*standing.job_rank) + " of the job)";
    if (standing.pid != 0) text += ", pid " + std::to_string(standing.pid);
    text += ": " + doing_text(standing, now);
    if (const std::string remarks = remarks_text(standing); !remarks.empty()) text += "; " + remarks;
  }
  return text;
}

}  // namespace shardway::record
