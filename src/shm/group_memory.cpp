#include "shm/group_memory.h"

#include <map>
#include <mutex>
#include <stdexcept>

#include "shm/errors.h"
#include "shm/fork_mutex.h"
#include "shm/process.h"

namespace shardway::shm {
namespace {

constexpr int64_t kHeadBytes = 4096;

int64_t bytes_for(const BoardPlan& plan) { return kHeadBytes + plan.ranks() * plan.section_bytes(); }

// What rank 0s of this process have made, by nonce.
struct Made {
  ForkMutex mutex;
  std::map<Nonce, std::weak_ptr<GroupMemory>> all;

  static Made& instance() {
    static auto* made = new Made;  // never destroyed: groups may outlive the end of main
    return *made;
  }
};

}  // namespace

// Sparse: what a group never uses costs nothing.
std::shared_ptr<GroupMemory> GroupMemory::create(const BoardPlan& plan) {
  const int64_t bytes = bytes_for(plan);
  if (const int64_t available = available_memory_bytes(); bytes > available)
    throw ArenaFull(bytes, available);
  File file = new_memory_file();
  set_size(file, bytes);
  seal(file, Writers::anybody);
  auto memory = std::make_shared<GroupMemory>(Mapping(file, bytes, Mapping::Access::write));
  memory->file_ = std::move(file);
  const Nonce nonce = random_nonce();
  *reinterpret_cast<MemoryHead*>(memory->mapping_.data()) = {.nonce = nonce, .size = bytes};
  Made& made = Made::instance();
  const std::lock_guard lock(made.mutex);
  std::erase_if(made.all, [](const auto& entry) { return entry.second.expired(); });
  made.all[nonce] = memory;
  return memory;
}

std::shared_ptr<GroupMemory> GroupMemory::find(const Nonce& nonce) {
  Made& made = Made::instance();
  const std::lock_guard lock(made.mutex);
  const auto found = made.all.find(nonce);
  return found == made.all.end() ? nullptr : found->second.lock();
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
  return mapping_.data() + kHeadBytes + rank * plan.section_bytes();
}

}  // namespace shardway::shm
