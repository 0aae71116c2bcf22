#include "link/hub/declared_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "link/model/layouts.h"
#include "link/model/portions.h"
#include "link/talk/wire.h"

namespace shardway::link {
namespace {

constexpr size_t kMostShown = 200;

using EntriesByRank = std::map<int64_t, const Json*>;

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string numbers_text(const Json& numbers, const char* between) {
  std::vector<std::string> parts;
  for (const auto number : numbers.get<std::vector<int64_t>>()) parts.push_back(std::to_string(number));
  return joined(parts, between);
}

std::string placement_text(const Json& placement) {
  const auto kind = placement.at(0).get<std::string>();
  if (kind == "R") return "R";
  if (kind != "S") return "P(" + placement.at(1).get<std::string>() + ")";
  const std::string shard = "S" + std::to_string(placement.at(1).get<int64_t>());
  const Json& sizes = placement.at(2);
  return sizes.is_null() ? shard : shard + "(" + numbers_text(sizes, ",") + ")";
}

bool is_placed(const Json& entry) { return entry.contains("placements"); }

// float32[8,6] whole, or float32[8,6] as S0,R over 2x2 ranks
std::string entry_text(const Json& entry) {
  std::string kind = text_in(entry, "dtype") + "[" + numbers_text(entry.at("shape"), ",") + "]";
  if (entry.contains(kMaxBytes))
    kind += " to a Load of " + std::to_string(entry.at(kMaxBytes).get<int64_t>()) + " bytes";
  if (!is_placed(entry) || entry.at("placements") == Json::array({Json::array({"R"})}))
    return kind + " whole";
  std::vector<std::string> places;
  for (const Json& placement : entry.at("placements")) places.push_back(placement_text(placement));
  return kind + " as " + joined(places, ",") + " over " + numbers_text(entry.at("mesh_shape"), "x") +
         " ranks";
}

std::vector<int64_t> ranks_of(const EntriesByRank& entries) {
  std::vector<int64_t> ranks;
  for (const auto& [rank, entry] : entries) ranks.push_back(rank);
  return ranks;
}

std::vector<std::string> problems_of(const std::string& name, const std::string& role, int64_t size,
                                     const EntriesByRank& entries) {
  const auto& [first_rank, first] = *entries.begin();
  std::vector<std::string> problems;
  for (const auto& [rank, entry] : entries) {
    if (*entry != *first)
      problems.push_back(name + ": " + entry_text(*first) + " on " + ranks_text(role, {first_rank}) + ", " +
                         entry_text(*entry) + " on rank " + std::to_string(rank));
  }
  if (!problems.empty() || !is_placed(*first)) return problems;
  std::vector<int64_t> beyond;
  std::vector<int64_t> absent;
  for (const auto rank : first->at("mesh").get<std::vector<int64_t>>()) {
    if (rank >= size) {
      beyond.push_back(rank);
    } else if (!entries.contains(rank)) {
      absent.push_back(rank);
    }
  }
  if (!beyond.empty())
    problems.push_back(name + ": its mesh has " + ranks_text(role, beyond) + ", but the role has " +
                       std::to_string(size) + " ranks");
  if (!absent.empty())
    problems.push_back(name + ": " + ranks_text(role, absent) + " of its mesh did not name it");
  return problems;
}

// A plain tensor lies whole on every rank that named it.
Json whole_on(const EntriesByRank& entries) {
  Json entry = *entries.begin()->second;
  const std::vector<int64_t> ranks = ranks_of(entries);
  entry["mesh_shape"] = Json::array({ranks.size()});
  entry["mesh"] = ranks;
  entry["placements"] = Json::array({Json::array({"R"})});
  entry["order"] = Json(std::vector<std::vector<int64_t>>(entry.at("shape").size()));
  return entry;
}

// Which names a rank said to be on a GPU.
using NamesByRank = std::map<int64_t, std::set<std::string>>;

std::set<std::string> names_in(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end()) return {};
  return found->get<std::set<std::string>>();
}

Json placed_entry(const std::string& name, const EntriesByRank& entries, const NamesByRank& on_gpu) {
  const Json& first = *entries.begin()->second;
  Json entry = is_placed(first) ? first : whole_on(entries);
  const auto ranks = entry.at("mesh").get<std::vector<int64_t>>();
  const bool is_on_gpu = std::all_of(ranks.begin(), ranks.end(), [&](int64_t rank) {
    const auto found = on_gpu.find(rank);
    return found != on_gpu.end() && found->second.contains(name);
  });
  if (is_on_gpu) entry["on_gpu"] = true;
  return entry;
}

bool is_complex_number(DType dtype) {
  return dtype == DType::c32 || dtype == DType::c64 || dtype == DType::c128;
}

// As torch.can_cast: from bool to integers to floating-point to complex numbers, never back.
bool can_cast(const std::string& published, const std::string& subscribed) {
  const auto before = dtype_if_named(published);
  const auto after = dtype_if_named(subscribed);
  if (!before || !after) return false;
  if (*after == DType::boolean) return *before == DType::boolean;
  if (is_integral(*after)) return is_integral(*before);
  return is_complex_number(*after) || !is_complex_number(*before);
}

// Says so if a piece does not fit into the buffer of its function.
std::string too_big(const Json& published, const Json& subscribed) {
  if (!subscribed.contains(kMaxBytes)) return {};
  const auto pieces = piece_bytes(published, subscribed);
  const auto& [rank, bytes] = *std::max_element(
      pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto limit = subscribed.at(kMaxBytes).get<int64_t>();
  if (bytes <= limit) return {};
  return "the piece of rank " + std::to_string(rank) + " takes " + std::to_string(bytes) +
         " bytes, more than max_bytes=" + std::to_string(limit) + " of its Load";
}

std::string difference(const Json& published, const Json& subscribed, bool is_cast) {
  if (published.at("shape") != subscribed.at("shape")) return "the shapes differ";
  for (const Json& placement : subscribed.at("placements")) {
    if (placement.at(0) == "P") return "a destination cannot be Partial";
  }
  const std::string before = text_in(published, "dtype");
  const std::string after = text_in(subscribed, "dtype");
  if (before != after && !is_cast) return "the dtypes differ, and cast=True is not given";
  if (before != after && !can_cast(before, after)) return "the dtype cannot be cast";
  return too_big(published, subscribed);
}

std::string compared(const std::string& name, const DeclaredModel& source, const DeclaredModel& target) {
  if (!target.entries.contains(name))
    return source.text_of(name) + ", but role " + target.role + " does not subscribe to it";
  if (!source.entries.contains(name))
    return target.text_of(name) + ", but role " + source.role + " does not publish it";
  const std::string why = difference(source.entries.at(name), target.entries.at(name), target.is_cast);
  if (why.empty()) return {};
  return why + ": published " + source.text_of(name) + ", subscribed " + target.text_of(name);
}

}  // namespace

std::string DeclaredModel::text_of(const std::string& name) const {
  return entry_text(entries.at(name)) + " on " + ranks_text(role, holders.at(name));
}

Json DeclaredModel::said() const {
  Json::object_t all;
  for (const std::string& name : names) all.emplace_back(name, entries.at(name));
  return all;
}

PutTogether put_together(const std::string& role, int64_t size, const std::map<int64_t, const Json*>& said) {
  PutTogether made;
  DeclaredModel& model = made.model;
  model.role = role;
  std::unordered_map<std::string, EntriesByRank> by_name;
  NamesByRank on_gpu;
  for (const auto& [rank, message] : said) {
    for (const Json& problem : member_of(*message, "problems"))
      made.problems.push_back(problem.get<std::string>() + " (role " + role + " rank " +
                              std::to_string(rank) + ")");
    for (const auto& [name, entry] : member_of(*message, "tensors").items()) {
      EntriesByRank& entries = by_name[name];
      if (entries.empty()) model.names.push_back(name);
      entries.emplace(rank, &entry);
    }
    model.is_cast = model.is_cast || member_of(*message, "cast").get<bool>();
    model.refused.merge(names_in(*message, "refused"));
    on_gpu[rank] = names_in(*message, "on_gpu");
  }
  for (const std::string& name : model.names) {
    const EntriesByRank& entries = by_name.at(name);
    for (std::string& problem : problems_of(name, role, size, entries))
      made.problems.push_back(std::move(problem));
    model.entries[name] = placed_entry(name, entries, on_gpu);
    model.holders[name] = ranks_of(entries);
  }
  return made;
}

std::vector<std::string> differences(const DeclaredModel& source, const DeclaredModel& target) {
  std::set<std::string> names(source.names.begin(), source.names.end());
  names.insert(target.names.begin(), target.names.end());
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (source.refused.contains(name) || target.refused.contains(name)) continue;
    const std::string why = compared(name, source, target);
    if (!why.empty()) found.push_back(std::string(name).append(": ").append(why));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string told(const std::string& what, const std::vector<std::string>& lines) {
  std::string text =
      what + ": " + std::to_string(lines.size()) + (lines.size() == 1 ? " difference" : " differences");
  const size_t shown = std::min(lines.size(), kMostShown);
  for (size_t i = 0; i < shown; ++i) text += "\n  " + lines[i];
  if (lines.size() > shown) text += "\n  and " + std::to_string(lines.size() - shown) + " more";
  return text;
}

std::string ranks_text(const std::string& role, std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> runs;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    const std::string begin = std::to_string(ranks[first]);
    runs.push_back(last == first ? begin : begin + "-" + std::to_string(ranks[last]));
    first = last + 1;
  }
  return "role " + role + " rank" + (ranks.size() > 1 ? "s " : " ") + joined(runs, ",");
}

}  // namespace shardway::link
