#include "record/loss.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include "record/flight_record.h"
#include "record/own_job.h"
#include "record/recorder.h"

namespace shardway::record {
namespace {

bool is_quiet() {
  const char* quiet = std::getenv("SHARDWAY_QUIET");  // NOLINT(concurrency-mt-unsafe): read, never set here
  return quiet != nullptr && *quiet != '\0' && std::string_view(quiet) != "0";
}

std::string as_lines_of_shardway(const std::string& text) {
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += "shardway: " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return lines;
}

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
  const std::string lines = as_lines_of_shardway(why + " (seen by rank " + std::to_string(rank) + ")\n" +
                                                 text_of(group, now_ns()) + file);
  // One write, so that blocks of several ranks do not mix.
  (void)!write(STDERR_FILENO, lines.data(), lines.size());
}

}  // namespace shardway::record
