#include "shm/board/group_memory.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include "shm/memory/errors.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

constexpr int64_t kGone = 64;  // where the words begin, behind the MemoryHead
static_assert(sizeof(MemoryHead) <= kGone);

int64_t whole_pages(int64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

int64_t gone_bytes(const BoardPlan& plan) {
  return whole_pages(kGone + plan.ranks() * int64_t{sizeof(std::atomic<uint32_t>)});
}

int64_t roll_end(const BoardPlan& plan) { return gone_bytes(plan) + whole_pages(Roll::bytes(plan.ranks())); }

// A line for each rank, and two words for each pair.
int64_t stream_bytes(const BoardPlan& plan) { return whole_pages(plan.ranks() * (64 + plan.ranks() * 8)); }

int64_t head_bytes(const BoardPlan& plan) { return roll_end(plan) + stream_bytes(plan); }

int64_t bytes_for(const BoardPlan& plan) { return head_bytes(plan) + plan.ranks() * plan.section_bytes(); }

// The memories that rank 0s of this process have made, by nonce.
struct Known {
  ForkMutex mutex;
  std::map<Nonce, std::weak_ptr<GroupMemory>> all;

  static Known& instance() {
    static auto* known = new Known;  // never destroyed: groups may outlive the end of main
    return *known;
  }
};

[[maybe_unused]] const Known& known_at_load = Known::instance();

}  // namespace

// Sparse: what a group never uses costs nothing.
GroupMemory::Made GroupMemory::create(const BoardPlan& plan) {
  const int64_t bytes = bytes_for(plan);
  if (const int64_t available = available_memory_bytes(); bytes > available)
    throw ArenaFull(bytes, available);
  File file = new_memory_file();
  set_size(file, bytes);
  seal(file, Writers::anybody);
  auto memory = std::make_shared<GroupMemory>(Mapping(file, bytes, Mapping::Access::write));
  const Nonce nonce = random_nonce();
  *reinterpret_cast<MemoryHead*>(memory->mapping_.data()) = {.nonce = nonce, .size = bytes};
  Known& known = Known::instance();
  const std::lock_guard lock(known.mutex);
  std::erase_if(known.all, [](const auto& entry) { return entry.second.expired(); });
  known.all[nonce] = memory;
  return {.memory = std::move(memory), .file = std::move(file)};
}

std::shared_ptr<GroupMemory> GroupMemory::find(const Nonce& nonce) {
  Known& known = Known::instance();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(nonce);
  return found == known.all.end() ? nullptr : found->second.lock();
}

std::shared_ptr<GroupMemory> GroupMemory::open(const File& file, const Nonce& expected,
                                               const BoardPlan& plan) {
  Mapping mapping = map_of_peer(file, Mapping::Access::write, expected);
  if (mapping.bytes() != bytes_for(plan))
    throw std::runtime_error("the group's memory has " + std::to_string(mapping.bytes()) + " bytes where " +
                             std::to_string(bytes_for(plan)) + " are expected");
  return std::make_shared<GroupMemory>(std::move(mapping));
}

std::byte* GroupMemory::section(const BoardPlan& plan, int64_t rank) const {
  return mapping_.data() + head_bytes(plan) + rank * plan.section_bytes();
}

Roll GroupMemory::roll(const BoardPlan& plan) const {
  return {mapping_.data() + gone_bytes(plan), plan.ranks()};
}

std::span<std::byte> GroupMemory::stream_words(const BoardPlan& plan) const {
  return {mapping_.data() + roll_end(plan), static_cast<size_t>(stream_bytes(plan))};
}

std::atomic<uint32_t>& GroupMemory::gone(int64_t rank) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(mapping_.data() + kGone)[rank];
}

// Release: pairs with the acquire in is_gone; this rank's last look at a board comes before.
void GroupMemory::say_gone(int64_t rank) const { gone(rank).store(1, std::memory_order_release); }

// Acquire: pairs with the release in say_gone; what the rank looked at may be freed.
bool GroupMemory::is_gone(int64_t rank) const { return gone(rank).load(std::memory_order_acquire) != 0; }

}  // namespace shardway::shm
