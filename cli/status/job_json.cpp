#include <array>

#include "cli/status/job_report.h"

namespace shardway::cli {
namespace {

using nlohmann::ordered_json;
using record::CallState;
using record::RecordedCall;

constexpr std::array kProcessStates = {"running", "sleeping", "stopped", "ended", "unknown"};

constexpr int64_t kNsPerMs = 1'000'000;

ordered_json json_of(const RecordedCall& call, int64_t now) {
  const int64_t end = call.state == CallState::running ? now : call.ended_ns;
  ordered_json json = {{"number", call.number},
                       {"op", call.op},
                       {"group", record::group_text(call.group)},
                       {"bytes", call.bytes},
                       {"state", record::name_of(call.state)},
                       {"lasted_ms", (end - call.begun_ns) / kNsPerMs}};
  if (call.state != CallState::running) json["ended_ms_ago"] = (now - call.ended_ns) / kNsPerMs;
  return json;
}

ordered_json json_of(const record::Standing& standing, int64_t now) {
  ordered_json json = {{"rank", standing.rank}};
  if (standing.job_rank) json["job_rank"] = *standing.job_rank;
  if (standing.pid != 0) json["pid"] = standing.pid;
  json["process"] = kProcessStates.at(static_cast<size_t>(standing.process));
  if (standing.call) json["call"] = json_of(*standing.call, now);
  if (standing.elsewhere) json["elsewhere"] = json_of(*standing.elsewhere, now);
  json["behind"] = standing.behind;
  json["differs"] = standing.differs;
  return json;
}

ordered_json json_of(const record::ProcessRecord& process, int64_t now) {
  ordered_json json = {{"pid", process.pid}};
  if (process.is_of_job) json["rank"] = process.rank;
  json["process"] = kProcessStates.at(static_cast<size_t>(process.state));
  json["last_calls"] = ordered_json::array();
  for (const RecordedCall& call : process.calls) json["last_calls"].push_back(json_of(call, now));
  return json;
}

}  // namespace

ordered_json job_json(const record::JobView& job, int64_t now) {
  ordered_json json = {{"job", job.name}, {"launcher", job.launcher}, {"size", job.size}};
  json["groups"] = ordered_json::array();
  for (const record::GroupView& group : job.groups) {
    ordered_json ranks = ordered_json::array();
    for (const record::Standing& standing : group.ranks) ranks.push_back(json_of(standing, now));
    json["groups"].push_back({{"group", record::group_text(group.id)}, {"ranks", std::move(ranks)}});
  }
  json["processes"] = ordered_json::array();
  for (const record::ProcessRecord* process : job.processes)
    json["processes"].push_back(json_of(*process, now));
  json["findings"] = ordered_json::array();
  for (const record::Finding& finding : findings_of(job, now)) json["findings"].push_back(finding.text);
  return json;
}

}  // namespace shardway::cli
