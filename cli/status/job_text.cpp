#include <algorithm>
#include <array>
#include <set>

#include "cli/status/job_report.h"

namespace shardway::cli {
namespace {

using record::CallState;
using record::GroupView;
using record::JobView;
using record::ProcessRecord;
using record::ProcessState;
using record::RecordedCall;
using record::Standing;

constexpr size_t kColumns = 7;
using StatusRow = std::array<std::string, kColumns>;
constexpr std::array<const char*, kColumns> kHeadings = {"rank",  "pid",   "process", "call",
                                                         "since", "bytes", ""};
constexpr std::array<bool, kColumns> kIsNumber = {true, true, false, false, true, true, false};

const char* word_of(ProcessState state) {
  constexpr std::array kWords = {"running", "sleeping", "stopped", "ended", "not found"};
  return kWords.at(static_cast<size_t>(state));
}

// The call, since when, and its bytes.
void fill_call(StatusRow& row, const RecordedCall& call, int64_t now) {
  const bool is_running = call.state == CallState::running;
  const std::string what = call.op + " (" + std::to_string(call.number) + ")";
  row[3] = (is_running ? "in " : call.state == CallState::failed ? "failed " : "after ") + what;
  row[4] = record::duration_text(now - (is_running ? call.begun_ns : call.ended_ns));
  row[5] = record::bytes_text(call.bytes);
}

StatusRow row_of(const Standing& standing, int64_t now) {
  StatusRow row;
  row[0] = std::to_string(standing.job_rank.value_or(standing.rank));
  row[1] = standing.pid == 0 ? "" : std::to_string(standing.pid);
  row[2] = word_of(standing.process);
  if (standing.call) fill_call(row, *standing.call, now);
  row[6] = record::remarks_text(standing);
  if (const auto& other = standing.elsewhere; other && !standing.is_in_call())
    row[6] +=
        (row[6].empty() ? "in " : ", in ") + other->op + " of group " + record::group_text(other->group);
  return row;
}

StatusRow row_of(const ProcessRecord& process, int64_t now) {
  StatusRow row;
  row[0] = process.is_of_job ? std::to_string(process.rank) : "";
  row[1] = std::to_string(process.pid);
  row[2] = word_of(process.state);
  if (!process.calls.empty()) {
    fill_call(row, process.calls.back(), now);
    row[6] = "group " + record::group_text(process.calls.back().group);
  }
  return row;
}

std::string padded(const std::string& text, size_t width, bool is_number) {
  const std::string space(width - std::min(width, text.size()), ' ');
  return is_number ? space + text : text + space;
}

// The rank, the first cell, has the rank's colour.
std::string table_of(const std::vector<StatusRow>& rows, const Terminal& terminal) {
  std::array<size_t, kColumns> widths{};
  for (size_t column = 0; column < kColumns; ++column) {
    widths[column] = std::string(kHeadings[column]).size();
    for (const StatusRow& row : rows) widths[column] = std::max(widths[column], row[column].size());
  }
  const auto line_of = [&](const auto& cells) {
    std::string line;
    for (size_t column = 1; column < kColumns; ++column)
      line += "  " + padded(cells[column], widths[column], kIsNumber[column]);
    line.resize(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::string text =
      "  " + faint(terminal, padded(kHeadings[0], widths[0], true) + line_of(kHeadings)) + "\n";
  for (const StatusRow& row : rows) {
    const std::string rank = padded(row[0], widths[0], true);
    const int64_t colour = row[0].empty() ? 0 : std::stoll(row[0]);
    text += "  " + in_colour_of(colour, terminal, rank) + line_of(row) + "\n";
  }
  return text;
}

std::string heading_of(const JobView& job) {
  const std::string found = std::to_string(job.processes.size());
  if (job.name.empty())
    return "job without a launcher: " + found + (job.processes.size() == 1 ? " process" : " processes");
  return "job " + job.name + ": " + found + " of " + std::to_string(job.size) + " ranks are here (" +
         job.launcher + ")";
}

}  // namespace

std::vector<record::Finding> findings_of(const JobView& job, int64_t now) {
  std::vector<record::Finding> findings;
  for (const GroupView& group : job.groups) {
    for (record::Finding& finding : record::findings_in(group, now)) findings.push_back(std::move(finding));
  }
  return findings;
}

std::string job_text(const JobView& job, const Terminal& terminal, int64_t now) {
  std::string text = bold(terminal, heading_of(job)) + "\n";
  std::set<int64_t> shown;
  for (const GroupView& group : job.groups) {
    std::vector<StatusRow> rows;
    for (const Standing& standing : group.ranks) {
      rows.push_back(row_of(standing, now));
      shown.insert(standing.pid);
    }
    text += record::heading_of(group) + "\n" + table_of(rows, terminal);
  }
  std::vector<StatusRow> others;
  for (const ProcessRecord* process : job.processes) {
    if (!shown.contains(process->pid)) others.push_back(row_of(*process, now));
  }
  if (!others.empty()) text += "in other groups\n" + table_of(others, terminal);
  const std::vector<record::Finding> findings = findings_of(job, now);
  for (const record::Finding& finding : findings) text += bold(terminal, finding.text) + "\n";
  return findings.empty() ? text + "nothing is stuck\n" : text;
}

}  // namespace shardway::cli
