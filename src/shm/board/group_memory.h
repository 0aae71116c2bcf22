// The memory that all ranks of a group write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "shm/board/board.h"
#include "shm/memory/memory_file.h"

namespace shardway::shm {

// Payloads and rings, a section per rank, in a file of the group's own: who takes part in the group can write
// them, and nothing else of a peer's. In front, a word per rank says whether it is gone. Rank 0 makes it; it
// goes when the last rank has let go of it.
class GroupMemory {
 public:
  // Rank 0's, and the file to hand to the others. Throws std::system_error, and ArenaFull where the machine
  // has too little memory.
  struct Made {
    std::shared_ptr<GroupMemory> memory;
    File file;
  };
  static Made create(const BoardPlan& plan);

  // Another rank's view: where it lies if rank 0 is a thread of this process, else as map_of_peer does it.
  static std::shared_ptr<GroupMemory> find(const Nonce& nonce);
  static std::shared_ptr<GroupMemory> open(const File& file, const Nonce& expected, const BoardPlan& plan);

  explicit GroupMemory(Mapping mapping) : mapping_(std::move(mapping)) {}

  const Nonce& nonce() const { return mapping_.head().nonce; }
  std::byte* section(const BoardPlan& plan, int64_t rank) const;

  // A rank that is gone looks at no peer's board any more: what lies there may be freed when all are.
  void say_gone(int64_t rank) const;
  bool is_gone(int64_t rank) const;

 private:
  std::atomic<uint32_t>& gone(int64_t rank) const;

  Mapping mapping_;
};

}  // namespace shardway::shm
