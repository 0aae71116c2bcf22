#include "record/part_names.h"

#include <map>
#include <mutex>

#include "shm/memory/fork_mutex.h"

namespace shardway::record {
namespace {

struct KnownParts {
  shm::ForkMutex mutex;
  std::map<uint64_t, PartNames> parts;

  static KnownParts& instance() {
    static auto* known = new KnownParts;  // never destroyed: groups may outlive the end of main
    return *known;
  }
};

[[maybe_unused]] const KnownParts& parts_at_load = KnownParts::instance();

}  // namespace

void know_part(uint64_t group, PartNames names) {
  KnownParts& known = KnownParts::instance();
  const std::lock_guard lock(known.mutex);
  known.parts[group] = std::move(names);
}

void forget_part(uint64_t group) {
  KnownParts& known = KnownParts::instance();
  const std::lock_guard lock(known.mutex);
  known.parts.erase(group);
}

std::optional<PartNames> part_names_of(uint64_t group) {
  KnownParts& known = KnownParts::instance();
  const std::lock_guard lock(known.mutex);
  const auto found = known.parts.find(group);
  return found == known.parts.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace shardway::record
