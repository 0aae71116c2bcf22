#include "shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <vector>

#include "shm/errors.h"
#include "shm/process.h"

namespace shardway::shm {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHeadBytes = kPageBytes;
constexpr int64_t kGrowBytes = 2 << 20;
constexpr int64_t kLeastArena = 64 << 20;
constexpr int64_t kLargestArena = int64_t{256} << 30;  // peers map all of it: addresses are not endless
constexpr int64_t kTrimFrom = 64 << 10;

int64_t whole_pages(int64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Small blocks share pages; larger ones have their own, so that trim can give them back.
int64_t rounded(int64_t bytes) {
  return bytes < 2048 ? (std::max(bytes, int64_t{1}) + 63) / 64 * 64 : whole_pages(bytes);
}

[[noreturn]] void raise_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// ftruncate past the file size limit would be a signal, not an error.
int64_t within_file_limit(int64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return bytes;
  return std::min(bytes, static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, kLargestArena)));
}

}  // namespace

Nonce random_nonce() {
  Nonce nonce{};
  if (getrandom(nonce.data(), sizeof(nonce), 0) != sizeof(nonce)) raise_error("getrandom");
  return nonce;
}

std::shared_ptr<Arena> Arena::create(int64_t limit_bytes) {
  File file(memfd_create("shardway", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) raise_error("memfd_create");
  const int64_t wanted = std::clamp(limit_bytes, kHeadBytes, kLargestArena);
  int64_t size = within_file_limit(wanted) / 4096 * 4096;
  for (;; size /= 2) {  // an address space limit may leave less
    if (ftruncate(file.get(), size) != 0) raise_error("ftruncate of a memfd");
    void* base = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      file.get(), 0);
    if (base == MAP_FAILED && (errno != ENOMEM || size < kLeastArena)) raise_error("mmap of a memfd");
    if (base == MAP_FAILED) continue;
    // Peers rely on the size: reading past the end of a file that shrank would be a signal.
    fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    madvise(base, static_cast<size_t>(size), MADV_HUGEPAGE);  // a hint: where it fails, pages are small
    return std::shared_ptr<Arena>(new Arena(std::move(file), static_cast<std::byte*>(base), size));
  }
}

namespace {

// The arenas of this process and, in a child of fork, of its parents: inherited tensors lie in those.
struct ProcessArenas {
  std::mutex mutex;
  std::vector<std::shared_ptr<Arena>> all;  // the last is the newest
  uint64_t generation = 0;                  // of the newest

  static ProcessArenas& instance() {
    static auto* arenas = new ProcessArenas;  // never destroyed: tensors may outlive the end of main
    return *arenas;
  }

  bool has_own() const { return !all.empty() && generation == fork_generation(); }
};

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

Arena::Arena(File file, std::byte* base, int64_t size)
    : file_(std::move(file)),
      base_(base),
      size_(size),
      nonce_(random_nonce()),
      generation_(fork_generation()),
      end_(kHeadBytes) {
  try {
    commit(kHeadBytes);
  } catch (...) {
    munmap(base_, static_cast<size_t>(size_));
    throw;
  }
  *reinterpret_cast<ArenaHead*>(base_) = {.nonce = nonce_, .size = size_};
}

Arena::~Arena() { munmap(base_, static_cast<size_t>(size_)); }

bool Arena::contains(const std::byte* data, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto base = reinterpret_cast<uintptr_t>(base_);
  return begin >= base && begin - base <= static_cast<uintptr_t>(size_ - bytes);
}

std::byte* Arena::allocate(int64_t bytes) {
  if (generation_ != fork_generation())
    throw WrongProcess("the arena belongs to the process that forked this one");
  if (bytes > size_) throw ArenaFull(bytes, size_ - end_);
  const int64_t wanted = rounded(bytes);
  const std::lock_guard lock(mutex_);
  const int64_t offset = take(wanted);
  used_.emplace(offset, wanted);
  in_use_ += wanted;
  return base_ + offset;
}

std::byte* Arena::allocate_pages(int64_t bytes) {
  const int64_t wanted = whole_pages(bytes);
  std::byte* block = allocate(wanted + kPageBytes);
  const int64_t before = whole_pages(offset_of(block)) - offset_of(block);
  std::byte* pages = block + before;
  {
    const std::lock_guard lock(mutex_);
    used_.erase(offset_of(block));
    if (before > 0) used_.emplace(offset_of(block), before);
    used_.emplace(offset_of(pages), wanted);
    used_.emplace(offset_of(pages) + wanted, kPageBytes - before);
  }
  if (before > 0) free(block);
  free(pages + wanted);
  return pages;
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
  if (bytes > size_ - offset) throw ArenaFull(bytes, size_ - offset);
  commit(offset + bytes);
  if (extends) erase_free(last);
  end_ = offset + bytes;
  return offset;
}

void Arena::commit(int64_t end) {
  if (end <= committed_) return;
  const int64_t target = std::min((end + kGrowBytes - 1) / kGrowBytes * kGrowBytes, size_);
  const int64_t available = available_memory_bytes();
  if (target - committed_ > available) throw ArenaFull(end - committed_, available);
  while (fallocate(file_.get(), 0, committed_, target - committed_) != 0) {
    if (errno != EINTR) throw ArenaFull(end - committed_, available_memory_bytes());
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
  return {.in_use_bytes = in_use_, .committed_bytes = committed_, .limit_bytes = size_};
}

void Arena::trim() {
  if (generation_ != fork_generation()) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [offset, bytes] : free_) {
    const int64_t begin = (offset + 4095) / 4096 * 4096;
    const int64_t end = (offset + bytes) / 4096 * 4096;
    if (end - begin >= kTrimFrom)
      fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin);
  }
}

}  // namespace shardway::shm
