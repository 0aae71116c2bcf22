#include "record/diagnosis.h"

#include <gtest/gtest.h>

namespace shardway::testing {
namespace {

using namespace record;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 100 * kSecond;
constexpr uint64_t kWorld = 0x3fa2c1'0000000000U;

RecordedCall call(uint64_t number, const std::string& op, int64_t rank, CallState state,
                  int64_t seconds_ago) {
  const int64_t then = kNow - seconds_ago * kSecond;
  const bool is_running = state == CallState::running;
  return {.order = number,
          .number = number,
          .op = op,
          .group = kWorld,
          .rank = rank,
          .size = 4,
          .bytes = 2048,
          .state = state,
          .begun_ns = is_running ? then : then - kSecond,
          .ended_ns = is_running ? 0 : then};
}

ProcessRecord process(int64_t rank, std::vector<RecordedCall> calls,
                      ProcessState state = ProcessState::sleeping) {
  return {.pid = 100 + rank,
          .state = state,
          .is_of_job = true,
          .rank = rank,
          .size = 4,
          .job = "launch 1",
          .launcher = "shardway launch",
          .calls = std::move(calls)};
}

// Rank 0 waits; rank 1 is in another op; rank 2 is stopped in no call; rank 3 is two calls behind.
std::vector<ProcessRecord> stuck_job() {
  return {process(0, {call(16, "barrier", 0, CallState::done, 13),
                      call(17, "all_gather_v", 0, CallState::running, 12)}),
          process(1, {call(16, "barrier", 1, CallState::done, 13),
                      call(17, "all_reduce", 1, CallState::running, 12)}),
          process(2, {call(17, "all_gather_v", 2, CallState::done, 11)}, ProcessState::stopped),
          process(3, {call(15, "all_reduce", 3, CallState::done, 20)})};
}

TEST(Diagnosis, OfAStuckJobSaysWhoIsWhere) {
  const std::vector<ProcessRecord> records = stuck_job();
  const std::vector<JobView> jobs = jobs_in(records);
  ASSERT_EQ(jobs.size(), 1U);
  ASSERT_EQ(jobs[0].groups.size(), 1U);
  EXPECT_EQ(text_of(jobs[0].groups[0], kNow),
            "group 3fa2c1 of 4 ranks\n"
            "  rank 0, pid 100: in all_gather_v for 12 s (call 17, 2.0 KiB)\n"
            "  rank 1, pid 101: in all_reduce for 12 s (call 17, 2.0 KiB); not the op of the others\n"
            "  rank 2, pid 102: in no call for 11 s, last all_gather_v (call 17, 2.0 KiB); stopped\n"
            "  rank 3, pid 103: in no call for 20 s, last all_reduce (call 15, 2.0 KiB); 2 calls behind");
}

TEST(Diagnosis, FindsThoseWhoHoldTheOthersUp) {
  const std::vector<ProcessRecord> records = stuck_job();
  const GroupView view = view_of_group(kWorld, 4, records);
  std::vector<int64_t> ranks;
  for (const Finding& finding : findings_in(view, kNow)) ranks.push_back(finding.rank);
  EXPECT_EQ(ranks, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(findings_in(view, kNow).at(1).text,
            "rank 2: in no call for 11 s, last all_gather_v (call 17, 2.0 KiB); stopped; kill -CONT 102 lets "
            "it go on");
}

TEST(Diagnosis, FindsNothingWhereRanksAreOnlyApartForAMoment) {
  std::vector<ProcessRecord> records;
  for (int64_t rank = 0; rank < 3; ++rank)
    records.push_back(process(rank, {call(17, "barrier", rank, CallState::running, 2)}));
  records.push_back(process(3, {call(16, "barrier", 3, CallState::done, 2)}));
  const GroupView view = view_of_group(kWorld, 4, records);
  EXPECT_EQ(view.ranks[3].behind, 1U);
  EXPECT_TRUE(findings_in(view, kNow).empty());
  EXPECT_EQ(findings_in(view, kNow, kSecond).size(), 1U);
}

TEST(Diagnosis, FindsNothingWhereNobodyWaits) {
  std::vector<ProcessRecord> records = {process(0, {call(17, "barrier", 0, CallState::done, 50)})};
  EXPECT_TRUE(findings_in(view_of_group(kWorld, 4, records), kNow).empty());
}

TEST(Diagnosis, ARankWithoutAProcessHasEnded) {
  std::vector<ProcessRecord> records = stuck_job();
  records.pop_back();
  const GroupView view = view_of_group(kWorld, 4, records);
  EXPECT_EQ(doing_text(view.ranks[3], kNow), "its process has ended");
  EXPECT_EQ(findings_in(view, kNow).back().text, "rank 3: its process has ended");
}

TEST(Diagnosis, ARecordThatForgotTheGroupMayBeTheMissingRank) {
  std::vector<ProcessRecord> records = stuck_job();
  for (ProcessRecord& record : records) record.is_of_job = false;
  records[3].calls[0].group = kWorld + 1;
  const GroupView view = view_of_group(kWorld, 4, records);
  EXPECT_EQ(view.ranks[3].process, ProcessState::unknown);
  EXPECT_EQ(findings_in(view, kNow).back().text,
            "rank 3: not found: its process has ended, or its last calls are all of other groups");
}

// Ranks 0 and 1 are here; nothing is known of ranks 2 and 3.
std::vector<ProcessRecord> half_of_a_job_over_hosts() {
  std::vector<ProcessRecord> records;
  for (int64_t rank = 0; rank < 2; ++rank) {
    RecordedCall here = call(17, "all_gather_v", rank, CallState::running, 12);
    here.may_span_hosts = true;
    records.push_back(process(rank, {here}));
  }
  return records;
}

TEST(Diagnosis, OfAGroupOverHostsARankOutOfSightNeedNotHaveEnded) {
  const std::vector<ProcessRecord> records = half_of_a_job_over_hosts();
  GroupView view = view_of_group(kWorld, 4, records);
  EXPECT_EQ(doing_text(view.ranks[3], kNow), "not found: it is on another host, or its process has ended");
  view.ranks[3].host = RankHost::another;
  EXPECT_EQ(doing_text(view.ranks[3], kNow), "on another host");
}

TEST(Diagnosis, WhereOnlyOtherHostsCanBeTheReasonOneFindingNamesTheirRanks) {
  std::vector<ProcessRecord> records = half_of_a_job_over_hosts();
  const std::vector<Finding> findings = findings_in(view_of_group(kWorld, 4, records), kNow);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rank, 2);
  EXPECT_EQ(findings[0].text,
            "the ranks here wait for 2, 3 of group 3fa2c1: on other hosts, where shardway status tells more, "
            "or ended");
  records[1].state = ProcessState::stopped;
  EXPECT_EQ(findings_in(view_of_group(kWorld, 4, records), kNow).at(0).rank, 1);
  EXPECT_TRUE(findings_in(view_of_group(kWorld, 4, half_of_a_job_over_hosts()), kNow, 20 * kSecond).empty());
}

TEST(Diagnosis, WhoIsInACallOfAnotherGroupIsShownThere) {
  std::vector<ProcessRecord> records = stuck_job();
  RecordedCall other = call(4, "broadcast", 0, CallState::running, 9);
  other.group = 0xabcdef'0000000000U;
  other.size = 2;
  records[3].calls.push_back(other);
  EXPECT_EQ(
      doing_text(view_of_group(kWorld, 4, records).ranks[3], kNow),
      "in no call for 20 s, last all_reduce (call 15, 2.0 KiB); in broadcast of group abcdef for 9.0 s");
}

TEST(Diagnosis, WhatBoardsSayCountsWhereThereIsNoRecord) {
  const std::vector<ProcessRecord> records = {process(0, {call(17, "barrier", 0, CallState::running, 1)})};
  const std::vector<Member> members = {{.pid = 100, .number = 17},
                                       {.process = ProcessState::ended, .number = 16},
                                       {.pid = 7, .number = 15},
                                       {.process = ProcessState::ended, .number = 17, .gave_up = true}};
  const GroupView view = view_of_group(kWorld, 4, records, members);
  EXPECT_EQ(doing_text(view.ranks[1], kNow), "its process has ended, after it had begun call 16");
  EXPECT_EQ(view.ranks[1].behind, 1U);
  EXPECT_EQ(doing_text(view.ranks[3], kNow),
            "it gave the group up, and has ended, after it had begun call 17");
  EXPECT_EQ(doing_text(view.ranks[2], kNow), "keeping no record; it has begun call 15");
}

TEST(Diagnosis, JobsAreToldApartByNameOrByAGroupInCommon) {
  std::vector<ProcessRecord> records = stuck_job();
  records.push_back({.pid = 200, .calls = {{.op = "barrier", .group = 5, .size = 2}}});
  records.push_back({.pid = 201, .calls = {{.op = "barrier", .group = 5, .rank = 1, .size = 2}}});
  records.push_back({.pid = 202, .calls = {{.op = "barrier", .group = 6}}});
  const std::vector<JobView> jobs = jobs_in(records);
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].name, "launch 1");
  EXPECT_EQ(jobs[0].processes.size(), 4U);
  EXPECT_EQ(jobs[1].processes.size(), 2U);
  EXPECT_EQ(jobs[2].processes.size(), 1U);
}

TEST(Diagnosis, AClaimOfManyRanksIsListedInPart) {
  RecordedCall huge = call(1, "barrier", 0, CallState::running, 1);
  huge.size = 1 << 20;
  const std::vector<ProcessRecord> records = {process(0, {huge})};
  EXPECT_EQ(jobs_in(records).at(0).groups.at(0).ranks.size(), 4096U);
}

TEST(Diagnosis, DurationsAndBytesHaveTheirUnits) {
  EXPECT_EQ(duration_text(4'000'000), "4 ms");
  EXPECT_EQ(duration_text(-5), "0 ms");
  EXPECT_EQ(duration_text(2'100'000'000), "2.1 s");
  EXPECT_EQ(duration_text(1800 * kSecond), "30 min");
  EXPECT_EQ(duration_text(72'000 * kSecond), "20 h");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(INT64_MAX), "8.0 EiB");
}

}  // namespace
}  // namespace shardway::testing
