#include "shm/memory/arena.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <vector>

#include "shm/memory/errors.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHeadBytes = kPageBytes;
constexpr int64_t kGrowBytes = 2 << 20;
constexpr int64_t kLeastArena = 64 << 20;
constexpr int64_t kLargestArena = int64_t{256} << 30;  // peers map all of it, and address space is limited

int64_t whole_pages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Small blocks share pages; larger ones have their own.
int64_t rounded(int64_t bytes) {
  return bytes < 2048 ? (std::max(bytes, int64_t{1}) + 63) / 64 * 64 : whole_pages(bytes);
}

// What set_size takes.
int64_t within_file_limit(int64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return bytes;
  return std::min(bytes, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kLargestArena)));
}

}  // namespace

std::shared_ptr<Arena> Arena::create(int64_t limit_bytes) {
  File file = new_memory_file();
  const int64_t wanted = std::clamp(limit_bytes, kHeadBytes, kLargestArena);
  for (int64_t size = within_file_limit(wanted) / kPageBytes * kPageBytes;; size /= 2) {
    set_size(file, size);
    try {
      Mapping mapping(file, size, Mapping::Access::write);
      seal(file, Writers::those_there_are);
      return std::shared_ptr<Arena>(new Arena(std::move(file), std::move(mapping)));
    } catch (const std::system_error& error) {  // an address space limit may leave less
      if (error.code() != std::errc::not_enough_memory || size < kLeastArena) throw;
    }
  }
}

namespace {

// The arenas of this process and, in a child of fork, of its parents: inherited tensors lie in those.
struct ProcessArenas {
  ForkMutex mutex;
  std::vector<std::shared_ptr<Arena>> all;  // the last is the newest
  std::optional<uint64_t> generation;       // of the newest; without: it is a parent's

  static ProcessArenas& instance() {
    static auto* arenas = new ProcessArenas;  // never destroyed: tensors may outlive the end of main
    return *arenas;
  }

  bool has_own() const { return !all.empty() && generation == fork_generation(); }
};

[[maybe_unused]] const ProcessArenas& arenas_at_load = ProcessArenas::instance();

}  // namespace

std::shared_ptr<Arena> Arena::of_process() {
  ProcessArenas& arenas = ProcessArenas::instance();
  const std::lock_guard lock(arenas.mutex);
  if (!arenas.has_own()) {
    arenas.all.push_back(create(physical_memory_bytes()));
    arenas.generation = fork_generation();
  }
  return arenas.all.back();
}

ArenaStats Arena::stats_of_process() {
  ProcessArenas& arenas = ProcessArenas::instance();
  const std::lock_guard lock(arenas.mutex);
  return arenas.has_own() ? arenas.all.back()->stats() : ArenaStats{};
}

void Arena::renew_of_process() {
  ProcessArenas& arenas = ProcessArenas::instance();
  const std::lock_guard lock(arenas.mutex);
  if (!arenas.has_own() || arenas.all.back().use_count() > 1) return;
  if (arenas.all.back()->stats().in_use_bytes > 0) return;
  arenas.all.pop_back();
  arenas.generation.reset();
}

bool Arena::is_in_any(const std::byte* data) {
  ProcessArenas& arenas = ProcessArenas::instance();
  const std::lock_guard lock(arenas.mutex);
  return std::any_of(arenas.all.begin(), arenas.all.end(),
                     [&](const auto& arena) { return arena->contains(data, 0); });
}

void Arena::free_anywhere(std::byte* block) {
  ProcessArenas& arenas = ProcessArenas::instance();
  const std::lock_guard lock(arenas.mutex);
  for (const auto& arena : arenas.all) {
    if (arena->contains(block, 0)) return arena->free(block);
  }
}

Arena::Arena(File file, Mapping mapping)
    : file_(std::move(file)),
      mapping_(std::move(mapping)),
      nonce_(random_nonce()),
      generation_(fork_generation()),
      end_(kHeadBytes) {
  commit(kHeadBytes);
  *reinterpret_cast<MemoryHead*>(mapping_.data()) = {.nonce = nonce_, .size = size()};
}

bool Arena::contains(const std::byte* data, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto base = reinterpret_cast<uintptr_t>(this->base());
  return begin >= base && begin - base <= static_cast<uintptr_t>(size() - bytes);
}

std::byte* Arena::allocate(int64_t bytes) {
  if (generation_ != fork_generation())
    throw WrongProcess("the arena belongs to the process that forked this one");
  if (bytes > size()) throw ArenaFull(bytes, size() - end_);
  const int64_t wanted = rounded(bytes);
  const std::lock_guard lock(mutex_);
  const int64_t offset = take(wanted);
  used_.emplace(offset, wanted);
  in_use_ += wanted;
  return mapping_.data() + offset;
}

// The smallest free block that is enough, else fresh memory at the end.
int64_t Arena::take(int64_t bytes) {
  if (const auto fit = by_size_.lower_bound({bytes, 0}); fit != by_size_.end()) {
    const auto [found, offset] = *fit;
    erase_free(free_.find(offset));
    if (found > bytes) put_free(offset + bytes, found - bytes);
    return offset;
  }
  int64_t offset = end_;
  auto last = free_.empty() ? free_.end() : std::prev(free_.end());
  const bool extends = last != free_.end() && last->first + last->second == end_;
  if (extends) offset = last->first;
  if (bytes > size() - offset) throw ArenaFull(bytes, size() - offset);
  commit(offset + bytes);
  if (extends) erase_free(last);
  end_ = offset + bytes;
  return offset;
}

void Arena::commit(int64_t end) {
  if (end <= committed_) return;
  const int64_t target = std::min((end + kGrowBytes - 1) / kGrowBytes * kGrowBytes, size());
  const int64_t available = available_memory_bytes();
  if (target - committed_ > available) throw ArenaFull(end - committed_, available);
  while (fallocate(file_.get(), 0, committed_, target - committed_) != 0) {
    if (errno != EINTR) throw ArenaFull(end - committed_, 0);  // whatever the machine has, it is not for us
  }
  committed_ = target;
}

void Arena::free(std::byte* block) {
  if (generation_ != fork_generation()) return;
  const std::lock_guard lock(mutex_);
  const auto used = used_.find(offset_of(block));
  if (used == used_.end()) return;
  int64_t offset = used->first;
  int64_t bytes = used->second;
  used_.erase(used);
  in_use_ -= bytes;
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    erase_free(after++);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      erase_free(before);
    }
  }
  put_free(offset, bytes);
}

void Arena::put_free(int64_t offset, int64_t bytes) {
  free_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void Arena::erase_free(std::map<int64_t, int64_t>::iterator block) {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

ArenaStats Arena::stats() {
  const std::lock_guard lock(mutex_);
  return {.in_use_bytes = in_use_, .committed_bytes = committed_, .limit_bytes = size()};
}

}  // namespace shardway::shm
