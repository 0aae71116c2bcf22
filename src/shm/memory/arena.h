// A rank's memory that its peers can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "shm/memory/memory_file.h"

namespace shardway::shm {

struct ArenaStats {
  int64_t in_use_bytes = 0;
  int64_t committed_bytes = 0;  // taken from the system, in use or not
  int64_t limit_bytes = 0;
};

// One sparse file without a name, sized once. Its rank maps it once for writing, and each peer maps it once
// for reading; nobody can write it in another way. Blocks fill it from the front. Memory that is freed stays
// committed for the next block, because no holes can be punched into a file that is sealed against writing.
// Any thread may call. In a child of fork, allocate throws WrongProcess and free does nothing.
class Arena {
 public:
  // Throws std::system_error if the system does not provide such memory.
  static std::shared_ptr<Arena> create(int64_t limit_bytes);

  // This process's own arena, made by the first call, with room for all of the machine's memory. A child of
  // fork gets one of its own.
  static std::shared_ptr<Arena> of_process();

  // What this process's own arena holds; zeros before there is one.
  static ArenaStats stats_of_process();

  // Lets go of this process's own arena if nothing is in it and no group has it. The next of_process makes
  // another.
  static void renew_of_process();

  // Both look among the arenas that of_process made, here or in a parent before fork.
  static bool is_in_any(const std::byte* data);
  static void free_anywhere(std::byte* block);

  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Memory aligned to 64 bytes. Throws ArenaFull.
  std::byte* allocate(int64_t bytes);
  void free(std::byte* block);

  bool contains(const std::byte* data, int64_t bytes) const;
  int64_t offset_of(const std::byte* data) const { return data - base(); }

  int fd() const { return file_.get(); }
  int64_t size() const { return mapping_.bytes(); }
  const Nonce& nonce() const { return nonce_; }
  const std::byte* base() const { return mapping_.data(); }
  ArenaStats stats();

 private:
  Arena(File file, Mapping mapping);

  int64_t take(int64_t bytes);
  void commit(int64_t end);
  void put_free(int64_t offset, int64_t bytes);
  void erase_free(std::map<int64_t, int64_t>::iterator block);

  File file_;
  Mapping mapping_;
  Nonce nonce_;
  uint64_t generation_;
  std::mutex mutex_;
  std::map<int64_t, int64_t> used_;                // offset → bytes
  std::map<int64_t, int64_t> free_;                // offset → bytes; no two touch
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset) of free_
  int64_t end_ = 0;                                // past the last block, used or free
  int64_t committed_ = 0;                          // past what the system has promised
  int64_t in_use_ = 0;
};

}  // namespace shardway::shm
