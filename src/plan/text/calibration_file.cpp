#include "plan/text/calibration_file.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>

#include "plan/text/calibration_json.h"

namespace shardway {
namespace {

constexpr uintmax_t kLargestFile = uintmax_t{64} << 20U;

std::string text_in(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw std::invalid_argument(path + ": cannot be read: " + error.message());
  if (bytes > kLargestFile) {
    throw std::invalid_argument(path + ": " + std::to_string(bytes) + " bytes; a topology has at most " +
                                std::to_string(kLargestFile));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(bytes), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    throw std::invalid_argument(path + ": cannot be read");
  }
  return text;
}

TopologyFile read_once(const std::string& path) {
  static std::mutex mutex;
  static std::string known_path;
  static std::filesystem::file_time_type known_time;
  static TopologyFile known;
  const std::lock_guard lock(mutex);
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error || path != known_path || time != known_time) {
    known = read_topology_file(path);
    known_path = path;
    known_time = time;
  }
  return known;
}

int64_t local_world_size() {
  const char* text = std::getenv("LOCAL_WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe): read, never set here
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const int64_t ranks = std::strtoll(text, &end, 10);
  if (*end != '\0' || ranks < 1) {
    throw std::invalid_argument("topology: LOCAL_WORLD_SIZE is '" + std::string(text) +
                                "'; it must be a number of ranks");
  }
  return ranks;
}

std::string machine_text(const std::string& processor, int64_t cores) {
  return processor + ", " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
}

// "2 ranks", "2 and 4 ranks", "2, 4 and 8 ranks".
std::string ranks_text(const std::vector<Calibration>& runs) {
  std::vector<int64_t> ranks;
  for (const Calibration& run : runs) ranks.push_back(run.ranks);
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text + " ranks";
}

}  // namespace

std::string to_json(const TopologyFile& file) {
  Json document = Json::parse(to_json(file.topology));
  for (const Calibration& run : file.runs) {
    if (&run == file.runs.data()) {
      document["measured"] = json_of(run);
    } else {
      document["also_measured"].push_back(json_of(run));
    }
  }
  return document.dump(2);
}

TopologyFile topology_file_from_json(const std::string& text, const std::string& name) {
  const Json document = parse_json(text, name);
  const JsonField root(document, name);
  return {.topology = topology_from(root), .runs = runs_from(root)};
}

TopologyFile read_topology_file(const std::string& path) {
  return topology_file_from_json(text_in(path), path);
}

Topology read_topology(const std::string& path) { return read_topology_file(path).topology; }

TopologyFile default_topology_file() {
  const char* path = std::getenv("SHARDWAY_TOPOLOGY");  // NOLINT(concurrency-mt-unsafe): as above
  if (path != nullptr && *path != '\0') return read_once(path);
  return {.topology = {.ranks_per_host = local_world_size()}};
}

Topology default_topology() { return default_topology_file().topology; }

MeasuredChoices choices_in(const TopologyFile& file, const std::string& processor, int64_t ranks) {
  for (const Calibration& run : file.runs) {
    if (run.ranks == ranks && run.processor == processor) return run.choices;
  }
  return {};
}

std::string objection_to_joining(const TopologyFile& file, const Calibration& run) {
  if (file.runs.empty() || !file.topology.tables)
    return "its figures were not measured by calls of each kind";
  const Calibration& other = file.runs.front();
  if (other.processor != run.processor || other.cores != run.cores)
    return "it was measured on another machine (" + machine_text(other.processor, other.cores) +
           "; this one has " + machine_text(run.processor, run.cores) + ")";
  if (other.backend != run.backend)
    return "it was measured with " + other.backend + ", and this is " + run.backend;
  return {};
}

TopologyFile joined(const TopologyFile& file, const MeasuredTopology& run) {
  TopologyFile both{.topology = run.topology, .runs = {run.calibration}};
  PriceTables tables = *run.topology.tables;
  for (const Calibration& other : file.runs) {
    if (other.ranks != run.calibration.ranks) both.runs.push_back(other);
  }
  for (const PriceTable& table : file.topology.tables ? *file.topology.tables : PriceTables{}) {
    if (table.ranks != run.calibration.ranks) tables.push_back(table);
  }
  std::sort(tables.begin(), tables.end(),
            [](const PriceTable& a, const PriceTable& b) { return a.ranks < b.ranks; });
  both.topology.tables = std::make_shared<const PriceTables>(std::move(tables));
  if (file.runs.empty()) return both;
  both.topology.between_hosts = file.topology.between_hosts;
  both.topology.ranks_per_host = file.topology.ranks_per_host;
  both.topology.host_of_rank = file.topology.host_of_rank;
  both.topology.two_levels = file.topology.two_levels;
  return both;
}

int64_t most_ranks_on_a_host(const Topology& topology, int64_t ranks) {
  std::map<int64_t, int64_t> on_host;
  int64_t most = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (!topology.host_of_rank.empty() && rank >= static_cast<int64_t>(topology.host_of_rank.size()))
      return ranks;
    most = std::max(most, ++on_host[topology.host_of(rank)]);
  }
  return most;
}

std::string doubt_about(const std::vector<Calibration>& runs, const PricedUse& use) {
  if (runs.empty()) return {};
  const Calibration& newest = runs.front();
  std::string where;
  if (!use.processor.empty() && use.processor != newest.processor)
    where = "on another processor (" + newest.processor + "; here it is " + use.processor + ")";
  else if (use.cores > 0 && use.cores != newest.cores)
    where = "with " + std::to_string(newest.cores) + " cores (here " + std::to_string(use.cores) + ")";
  std::string who;
  if (use.ranks > 0 &&
      std::none_of(runs.begin(), runs.end(), [&](const Calibration& run) { return run.ranks == use.ranks; }))
    who = "with " + ranks_text(runs) + " (this is for " + std::to_string(use.ranks) + ")";
  if (where.empty() && who.empty()) return {};
  return "its figures were measured " + where + (where.empty() || who.empty() ? "" : " and ") + who +
         ": measure again with shardway calibrate";
}

}  // namespace shardway
