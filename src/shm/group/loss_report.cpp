#include "shm/group/loss_report.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>
#include <string_view>
#include <vector>

#include "record/diagnosis.h"
#include "record/recorder.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

bool is_quiet() {
  const char* quiet = std::getenv("SHARDWAY_QUIET");  // NOLINT(concurrency-mt-unsafe): read, never set here
  return quiet != nullptr && *quiet != '\0' && std::string_view(quiet) != "0";
}

bool has_ended(const File& process) {
  pollfd handle{.fd = process.get(), .events = POLLIN, .revents = 0};
  return poll(&handle, 1, 0) > 0;
}

record::Member member_of(const Waiting& waiting, int64_t rank) {
  record::Member member;
  if (rank == waiting.rank()) {
    member.pid = getpid();
  } else if (const File& process = waiting.peer(rank).process(); has_ended(process)) {
    member.process = record::ProcessState::ended;
  } else {
    member.pid = pid_of(process);  // 0 in a namespace that this process cannot see
  }
  if (member.pid != 0) member.process = record::state_of(member.pid);
  member.gave_up = waiting.ended(rank).how != End::none;
  for (const uint64_t page : {0, 1}) {
    // Acquire: as in every meeting; nothing else of the page is read here.
    member.number =
        std::max(member.number, waiting.board(rank).entered(page).load(std::memory_order_acquire));
  }
  return member;
}

std::string report_of(const Waiting& waiting, uint64_t group, const std::string& why) {
  std::vector<record::Member> members;
  std::vector<record::ProcessRecord> records;
  std::set<int64_t> read;  // ranks may be threads of one process
  for (int64_t rank = 0; rank < waiting.size(); ++rank) {
    members.push_back(member_of(waiting, rank));
    const int64_t pid = members.back().pid;
    if (pid == 0 || !read.insert(pid).second) continue;
    if (auto record = record::record_of(pid)) records.push_back(std::move(*record));
  }
  const record::GroupView view = record::view_of_group(group, waiting.size(), records, members);
  std::string text = why + " (seen by rank " + std::to_string(waiting.rank()) + ")\n" +
                     record::text_of(view, record::now_ns());
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += "shardway: " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return lines;
}

}  // namespace

bool is_loss(const Waiting& waiting) {
  const End how = waiting.ended(waiting.rank()).how;
  return how == End::died || how == End::timed_out;
}

void report_loss(const Waiting& waiting, uint64_t group, const std::string& why) {
  if (is_quiet()) return;
  try {
    const std::string lines = report_of(waiting, group, why);
    // One write, so that blocks of several ranks do not mix.
    (void)!write(STDERR_FILENO, lines.data(), lines.size());
  } catch (const std::exception&) {  // the loss itself is what the caller has to hear
  }
}

}  // namespace shardway::shm
