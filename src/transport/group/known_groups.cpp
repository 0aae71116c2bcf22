#include "transport/group/known_groups.h"

#include <c10/util/Exception.h>

#include <iterator>

#include "transport/memory/shared_memory.h"

namespace shardway {
namespace {

[[maybe_unused]] const KnownGroups& groups_at_load = KnownGroups::instance();

// torch makes static objects for its first error, under a lock of the C library's that fork does not know of.
// A child that is told by the first error would wait for a thread of its parent's. So the first is made here.
bool has_made_first_error() {
  const c10::DistBackendError first({__func__, __FILE__, __LINE__}, "");
  return true;
}

[[maybe_unused]] const bool kHasErrorAtLoad = has_made_first_error();

}  // namespace

KnownGroups& KnownGroups::instance() {
  static auto* groups = [] {
    before_trim([] { instance().forget_gone(); });
    return new KnownGroups;  // never destroyed: groups may outlive the end of main
  }();
  return *groups;
}

std::shared_ptr<KnownGroup> KnownGroups::of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  std::vector<Entry> gone;  // destroyed after the lock: what a group leaves takes locks of its own
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(group.get());
  if (found != entries_.end()) return found->second.known;
  gone = take_gone();
  auto known = std::make_shared<KnownGroup>();
  entries_.emplace(group.get(),
                   Entry{.group = c10::weak_intrusive_ptr<c10d::ProcessGroup>(group), .known = known});
  return known;
}

void KnownGroups::forget_gone() {
  std::vector<Entry> gone;
  const std::lock_guard lock(mutex_);
  gone = take_gone();
}

void KnownGroups::forget(const c10::weak_intrusive_ptr<c10d::ProcessGroup>& group) {
  std::shared_ptr<KnownGroup> gone;
  const std::lock_guard lock(mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!(entry->second.group == group)) continue;
    gone = std::move(entry->second.known);
    entries_.erase(entry);
    return;
  }
}

std::vector<KnownGroups::Entry> KnownGroups::take_gone() {
  std::vector<Entry> gone;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    if (entry->second.group.expired()) {
      gone.push_back(std::move(entry->second));
      entries_.erase(entry);
    }
    entry = next;
  }
  return gone;
}

}  // namespace shardway
