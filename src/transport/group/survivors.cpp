#include "transport/group/survivors.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/c10d/virtual_group.h"
#include "transport/common/giving_up.h"
#include "transport/group/hosts_transport.h"
#include "transport/group/known_groups.h"
#include "transport/group/process_group.h"
#include "transport/shm/shm.h"
#include "transport/shm/shm_engine.h"
#include "transport/shm/shm_errors.h"

namespace shardway {
namespace {

constexpr int64_t kMostTold = 1024;

// Null if the backend of CPU tensors does not span hosts by itself.
SpansHosts* spanning(c10d::ProcessGroup& group) {
  return dynamic_cast<SpansHosts*>(backend_of(group, c10::DeviceType::CPU).get());
}

}  // namespace

std::optional<Survivors> Survivors::of(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                       std::optional<std::chrono::milliseconds> timeout) {
  const auto engine = shm_engine_of(*make_transport(group));
  if (!engine) return std::nullopt;
  std::vector<int64_t> ranks(static_cast<size_t>(group->getSize()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Survivors(engine->shrink(timeout), ranks);
}

Survivors::Survivors(shm::Subgroup part, const std::vector<int64_t>& ranks)
    : engine_(std::make_shared<ShmEngine>(std::move(part.group))) {
  for (const int64_t member : part.members) members_.push_back(ranks[static_cast<size_t>(member)]);
}

Survivors Survivors::shrunk(std::optional<std::chrono::milliseconds> timeout) const {
  return {engine_->shrink(timeout), members_};
}

int64_t Survivors::rank() const { return engine_->group().rank(); }
uint64_t Survivors::id() const { return engine_->group().id(); }

void Survivors::serve(const c10::intrusive_ptr<c10d::ProcessGroup>& group) const { adopt(group, engine_); }

std::vector<std::string> Survivors::told(const std::string& mine) const {
  const auto note = std::as_bytes(std::span(mine)).first(std::min<size_t>(mine.size(), kMostTold));
  std::vector<std::byte> rows(members_.size() * kMostTold);
  std::vector<int64_t> lengths(members_.size());
  engine_->in_turn([&](shm::SharedGroup& group) {
    translated(
        group.rank(),
        [&] {
          group.gather_notes(
              {.note = note, .rows = rows.data(), .row_bytes = kMostTold, .lengths = lengths.data()},
              {.mark = shm::mark_of("survivors"), .name = "shrink"});
        },
        "shrink");
  });
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto* text = reinterpret_cast<const char*>(rows.data() + rank * kMostTold);
    texts.emplace_back(text, static_cast<size_t>(lengths[rank]));
  }
  return texts;
}

void end_for_shrink(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::string why = "it goes on in a smaller group: call shrink on every rank";
  if (auto* hosts = spanning(*group)) return hosts->hosts_transport().give_up(why);
  give_up(*make_transport(group), why);
}

std::vector<int64_t> gone_ranks(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (auto* hosts = spanning(*group)) return hosts->hosts_transport().gone();
  const auto known = KnownGroups::instance().of(group);
  known->home.check();
  const std::lock_guard lock(known->mutex);
  return known->gone ? known->gone() : std::vector<int64_t>();
}

}  // namespace shardway
