#include "link/moves/roster.h"

#include <stdexcept>
#include <unordered_map>

#include "link/model/layouts.h"
#include "link/model/portions.h"
#include "link/talk/parsed.h"

namespace shardway::link {
namespace {

constexpr int64_t kMostInGroup = int64_t{1} << 20;
using EntriesByName = std::unordered_map<std::string, const Json*>;

EntriesByName by_name(const Json& model) {
  EntriesByName found;
  for (const auto& [name, entry] : model.items()) found[name] = &entry;
  return found;
}

void add_moves(const EntriesByName& published, const RosterRole& source, const Json& subscribed,
               const RosterRole& target, std::vector<ModelMove>& moves) {
  PortionCounter portions;
  for (const auto& [name, wanted] : subscribed.items()) {
    const auto found = published.find(name);
    if (found == published.end()) throw NotOurs("a roster in which nobody publishes " + name);
    const Json& entry = *found->second;
    const DType dtype = dtype_named(entry.at("dtype").get<std::string>());
    moves.push_back({.name = name,
                     .role = target.name,
                     .before = layout_of(entry, source.first_rank, dtype),
                     .after = layout_of(wanted, target.first_rank, dtype),
                     .portion = portions.next(entry, wanted),
                     .is_on_gpus = entry.contains("on_gpu") && wanted.contains("on_gpu")});
  }
}

std::vector<RosterRole> roles_in(const Json& said) {
  std::vector<RosterRole> roles;
  int64_t first_rank = 0;
  for (const Json& role : said.at("roles")) {
    const auto size = role.at(1).get<int64_t>();
    if (size < 1 || size > kMostInGroup - first_rank) throw NotOurs("a roster with too many ranks");
    roles.push_back({.name = role.at(0).get<std::string>(), .size = size, .first_rank = first_rank});
    first_rank += size;
  }
  if (roles.empty() || roles[0].name != said.at("source").get<std::string>())
    throw NotOurs("a roster without a publisher");
  return roles;
}

}  // namespace

Roster Roster::read(const Json& said) {
  try {
    Roster roster{.meeting = said.at("store").at("meeting").get<std::string>(),
                  .roles = roles_in(said),
                  .moves = {},
                  .ranks = 0};
    roster.ranks = roster.roles.back().first_rank + roster.roles.back().size;
    const RosterRole& source = roster.roles[0];
    const Json& models = said.at("models");
    const EntriesByName published = by_name(models.at(source.name));
    for (size_t i = 1; i < roster.roles.size(); ++i)
      add_moves(published, source, models.at(roster.roles[i].name), roster.roles[i], roster.moves);
    return roster;
  } catch (const Json::exception& error) {
    throw NotOurs(std::string("a roster cannot be read: ") + error.what());
  } catch (const std::invalid_argument& error) {
    throw NotOurs(std::string("a roster cannot be read: ") + error.what());
  }
}

Roster Roster::parse(const std::string& text) { return read(parsed(text)); }

int64_t Roster::rank_of(const Claim& claim) const {
  for (const RosterRole& role : roles) {
    if (role.name == claim.role && role.size == claim.size) return role.first_rank + claim.rank;
  }
  throw NotOurs("a roster without " + to_string(claim));
}

}  // namespace shardway::link
