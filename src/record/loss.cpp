#include "record/loss.h"

#include <algorithm>
#include <exception>
#include <vector>

#include "record/flight_record.h"
#include "record/log.h"
#include "record/own_job.h"
#include "record/recorder.h"

namespace shardway::record {
namespace {

// Empty where torch is told nothing of files.
std::string words_on_file() {
  const std::string prefix = flight_record_prefix();
  if (prefix.empty()) return "";
  try {
    return "\nthe last calls of this rank, for torchfrtrace: " + write_own_flight_record(prefix);
  } catch (const std::exception& error) {
    return std::string("\nthe last calls of this rank could not be written: ") + error.what();
  }
}

}  // namespace

GroupView view_from_here(uint64_t id, int64_t size, std::span<const int64_t> elsewhere) {
  GroupView view = view_of_group(id, size, records_of_own_job());
  for (Standing& standing : view.ranks) {
    const bool is_named = std::find(elsewhere.begin(), elsewhere.end(), standing.rank) != elsewhere.end();
    if (is_named && !standing.has_record) standing.host = RankHost::another;
  }
  return view;
}

void report_loss(const std::string& why, int64_t rank, const GroupView& group) {
  const std::string file = words_on_file();
  if (is_quiet()) return;
  print_lines(why + " (seen by rank " + std::to_string(rank) + ")\n" + text_of(group, now_ns()) + file);
}

}  // namespace shardway::record
