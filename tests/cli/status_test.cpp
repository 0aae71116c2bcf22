// `shardway status`, asked about ranks that are at work.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>

#include "rank_runner.h"
#include "shardway/shm.h"

namespace shardway::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

struct Printed {
  std::string text;
  int code = 0;
};

Printed status(const std::string& arguments) {
  const std::string command =
      std::string(SHARDWAY_PROGRAM_FOLDER) + "/shardway status " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  Printed printed;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    printed.text.append(buffer.data(), got);
  printed.code = WEXITSTATUS(pclose(pipe));
  return printed;
}

void require_line(const Printed& printed, const std::string& pattern) {
  require(std::regex_search(printed.text, std::regex(pattern)), "no " + pattern + " in:\n" + printed.text);
}

std::string fresh_job() {
  static int jobs = 0;
  return "status-test-" + std::to_string(getpid()) + "-" + std::to_string(++jobs);
}

constexpr int64_t kRanks = 3;
constexpr int64_t kObserver = kRanks;

// Three ranks of a job, and a process that is no rank and watches them.
Endings run_watched(const std::string& job, const std::function<void(const HostGroup&)>& rank_body,
                    const std::function<void()>& observer_body) {
  return run_processes_apart(kRanks + 1, [&](int64_t rank, const ExchangeAmong& exchange_among) {
    if (rank == kObserver) return observer_body();
    setenv("SHARDWAY_JOB", job.c_str(), 1);
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    rank_body(HostGroup::join({.rank = rank, .size = kRanks, .exchange = exchange_among({0, 1, 2})}));
  });
}

// Looks until `holds` is true of the job. Throws after 20 s.
json await(const std::string& job, const std::function<bool(const json&)>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string last;
  while (std::chrono::steady_clock::now() < end) {
    last = status("--json --job " + job).text;
    if (last.starts_with('{')) {
      json found = json::parse(last).at("jobs").at(0);
      if (found.at("processes").size() == kRanks && holds(found)) return found;
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  throw std::runtime_error("it did not come to that: " + last);
}

TEST(Status, OfAJobThatIsStuckNamesWhoHoldsItUp) {
  const std::string job = fresh_job();
  const auto rank = [](const HostGroup& group) {
    group.barrier();
    if (group.rank() == 2) raise(SIGSTOP);
    std::array<double, 4> numbers{};
    group.all_reduce<double>(numbers, numbers);
  };
  const auto observer = [&] {
    const json stuck = await(job, [](const json& found) {
      const json& ranks = found.at("groups").at(0).at("ranks");
      return ranks[0]["call"]["op"] == "all_reduce" && ranks[1]["call"]["op"] == "all_reduce" &&
             ranks[2]["process"] == "stopped";
    });
    const json& last = stuck.at("groups").at(0).at("ranks").at(2);
    const auto pid = last.at("pid").get<pid_t>();
    const Printed text = status("--pid " + std::to_string(pid));
    const Printed as_json = status("--json --job " + job);
    kill(pid, SIGCONT);
    require(stuck.at("job") == "launch " + job && stuck.at("size") == 3, stuck.dump());
    require(last.at("behind") == 1 && last.at("call").at("op") == "barrier", last.dump());
    require(stuck["groups"][0]["ranks"][0]["call"]["state"] == "running", stuck.dump());
    require(stuck["groups"][0]["ranks"][0]["call"]["bytes"] == 32, stuck.dump());
    require(stuck["processes"][0]["last_calls"].size() == 3, stuck.dump());  // join, barrier, all_reduce
    require(text.code == 1 && as_json.code == 1, "the exit code is another");
    require_line(text, "^job launch " + job + ": 3 of 3 ranks are here \\(shardway launch\\)\n");
    require_line(text, "\n +0 +\\d+  (sleeping|running) +in all_reduce \\(2\\) +\\d[0-9.]* m?s +32 B\n");
    require_line(text, "\n +2 +" + std::to_string(pid) +
                           "  stopped +after barrier \\(1\\) .*stopped, 1 call behind\n");
    require_line(text, "\nrank 2: in no call for .*kill -CONT " + std::to_string(pid) + " lets it go on\n$");
    require(text.text.find("nothing is stuck") == std::string::npos, text.text);
  };
  EXPECT_EQ(run_watched(job, rank, observer), (Endings{"", "", "", ""}));
}

TEST(Status, OfAJobWithADeadRankSaysSo) {
  const std::string job = fresh_job();
  const auto rank = [](const HostGroup& group) {
    group.barrier();
    if (group.rank() == 1) raise(SIGKILL);
    // Not in a call, so that the death goes unnoticed.
    std::this_thread::sleep_for(milliseconds(1500));
  };
  const auto observer = [&] {
    Printed text;
    for (int look = 0; look < 100 && text.text.find("ended") == std::string::npos; ++look) {
      std::this_thread::sleep_for(milliseconds(20));
      text = status("--job " + job);
    }
    require_line(text, ": 2 of 3 ranks are here");
    require_line(text, "\n +1 +ended\n");
    require(text.code == 0, "nobody waits for it: " + text.text);
  };
  EXPECT_EQ(run_watched(job, rank, observer), (Endings{"", "signal 9", "", ""}));
}

TEST(Status, OfAJobThatRunsSaysThatNothingIsStuckAndWatchesItToTheEnd) {
  const std::string job = fresh_job();
  const auto rank = [](const HostGroup& group) {
    for (int call = 0; call < 60; ++call) {
      group.barrier();
      std::this_thread::sleep_for(milliseconds(20));
    }
  };
  const auto observer = [&] {
    await(job, [](const json& found) { return found.at("findings").empty(); });
    const Printed watched = status("--watch --job " + job);
    require(watched.code == 0, "the exit code is another: " + watched.text);
    require_line(watched,
                 "nothing is stuck\n(.|\n)*no running job of this user has '" + job + "' in its name\n$");
  };
  EXPECT_EQ(run_watched(job, rank, observer), (Endings{"", "", "", ""}));
}

}  // namespace
}  // namespace shardway::testing
