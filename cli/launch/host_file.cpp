#include "cli/launch/host_file.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <stdexcept>

#include "cli/notation.h"

namespace shardway::cli {
namespace {

constexpr const char* kSlots = "slots=";

// An agent takes a word that begins with a dash for an option.
bool is_name(const std::string& word) {
  const auto is_allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string("._-@:").find(c) != std::string::npos;
  };
  return !word.empty() && word.front() != '-' && std::ranges::all_of(word, is_allowed);
}

LaunchHost host_in(std::istringstream words) {
  LaunchHost host;
  std::string slots;
  words >> host.name >> slots;
  std::string more;
  if (words >> more) throw std::invalid_argument("'" + more + "' is too much");
  const size_t colon = host.name.find(':');
  const bool has_one_colon = colon != std::string::npos && colon == host.name.rfind(':');
  if (slots.empty() && has_one_colon) {
    slots = kSlots + host.name.substr(colon + 1);
    host.name.erase(colon);
  }
  if (!is_name(host.name)) throw std::invalid_argument("'" + host.name + "' is not the name of a host");
  if (slots.empty()) return host;
  if (!slots.starts_with(kSlots)) throw std::invalid_argument("'" + slots + "' must be such as slots=4");
  host.ranks = read_count(slots.substr(std::string(kSlots).size()), "a number of ranks, such as 4");
  if (host.ranks > kMostRanks)
    throw std::invalid_argument("more than " + std::to_string(kMostRanks) + " ranks on one host");
  return host;
}

}  // namespace

std::vector<LaunchHost> read_host_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::invalid_argument("--hosts " + path + " cannot be read");
  std::vector<LaunchHost> hosts;
  std::set<std::string> names;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      hosts.push_back(host_in(std::istringstream(line)));
      if (!names.insert(hosts.back().name).second)
        throw std::invalid_argument(hosts.back().name + " is there twice");
    } catch (const std::invalid_argument& mistake) {
      throw std::invalid_argument("--hosts " + path + ": line " + std::to_string(number) + ": " +
                                  mistake.what());
    }
  }
  if (hosts.empty()) throw std::invalid_argument("--hosts " + path + " names no host");
  return hosts;
}

std::vector<LaunchHost> hosts_of(const std::vector<LaunchHost>& found, int64_t ranks) {
  const int64_t all = std::accumulate(found.begin(), found.end(), int64_t{0},
                                      [](int64_t sum, const LaunchHost& host) { return sum + host.ranks; });
  if (ranks > all)
    throw std::invalid_argument("--ranks " + std::to_string(ranks) + " is more than the " +
                                std::to_string(all) + " that the hosts take");
  int64_t left = ranks == 0 ? all : ranks;
  std::vector<LaunchHost> taken;
  for (const LaunchHost& host : found) {
    if (left == 0) break;
    taken.push_back({.name = host.name, .ranks = std::min(host.ranks, left)});
    left -= taken.back().ranks;
  }
  return taken;
}

}  // namespace shardway::cli
