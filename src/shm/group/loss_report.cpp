#include "shm/group/loss_report.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <set>
#include <vector>

#include "record/log.h"
#include "record/loss.h"
#include "record/part_names.h"
#include "record/recorder.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

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

record::GroupView view_of(const Waiting& waiting, uint64_t group) {
  std::vector<record::Member> members;
  std::vector<record::ProcessRecord> records;
  std::set<int64_t> read;  // ranks may be threads of one process
  for (int64_t rank = 0; rank < waiting.size(); ++rank) {
    members.push_back(member_of(waiting, rank));
    const int64_t pid = members.back().pid;
    if (pid == 0 || !read.insert(pid).second) continue;
    if (auto record = record::record_of(pid)) records.push_back(std::move(*record));
  }
  return record::view_of_group(group, waiting.size(), records, members);
}

// Ranks of a part get their numbers in the whole.
void number_as_in_whole(record::GroupView& view, const record::PartNames& part) {
  for (record::Standing& standing : view.ranks)
    standing.rank = part.numbers[static_cast<size_t>(standing.rank)];
  view.place = part.place;
}

}  // namespace

bool is_loss(const Waiting& waiting) {
  const End how = waiting.ended(waiting.rank()).how;
  return how == End::died || how == End::timed_out;
}

void report_loss(const Waiting& waiting, uint64_t group, const PeerLost& lost) {
  try {
    record::GroupView view = view_of(waiting, group);
    const auto part = record::part_names_of(group);
    if (!part) return record::report_loss(lost.what(), waiting.rank(), view);
    const auto number_of = [&](int64_t rank) { return part->numbers[static_cast<size_t>(rank)]; };
    number_as_in_whole(view, *part);
    const bool is_of_peer = !lost.why().empty();
    const PeerLost in_whole = is_of_peer ? PeerLost(number_of(lost.peer()), lost.why()) : lost;
    record::report_loss(in_whole.what(), number_of(waiting.rank()), view);
  } catch (const std::exception&) {  // the loss itself is what the caller has to hear
  }
}

void report_wait(const Waiting& waiting, uint64_t group, const LongWait& wait) {
  if (record::is_quiet()) return;
  try {
    record::GroupView view = view_of(waiting, group);
    int64_t rank = waiting.rank();
    if (const auto part = record::part_names_of(group)) {
      number_as_in_whole(view, *part);
      rank = part->numbers[static_cast<size_t>(rank)];
    }
    std::string text = "rank " + std::to_string(rank) + " has waited for " +
                       record::duration_text(wait.waited.count()) + " in " + wait.op + " (call " +
                       std::to_string(wait.number) + ") of " + record::heading_of(view);
    for (const record::Finding& finding : record::findings_in(view, record::now_ns(), 0))
      text += "\n  " + finding.text;
    record::print_lines(text);
  } catch (const std::exception&) {  // a wait must not fail because it cannot be told
  }
}

}  // namespace shardway::shm
