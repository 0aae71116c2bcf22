// The memory that all ranks of a group write.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "shm/board/board.h"
#include "shm/board/roll.h"
#include "shm/memory/memory_file.h"

namespace shardway::shm {

// Payloads and rings, a section per rank, in a file of the group's own. Members of the group can write the
// sections, and nothing else that belongs to a peer. At the front, a word per rank says whether that rank is
// gone, and behind the words lie the roll and the words of streams. Rank 0 makes the memory; it is freed when
// the last rank lets go of it.
class GroupMemory {
 public:
  // Makes rank 0's view, and the file to hand to the others. Throws std::system_error, and ArenaFull if the
  // machine has too little memory.
  struct Made {
    std::shared_ptr<GroupMemory> memory;
    File file;
  };
  static Made create(const BoardPlan& plan);

  // Another rank's view. find returns the memory that a rank 0 of this process made, or null. open maps the
  // file of a rank 0 in another process: it throws as map_of_peer does, and also if the size is wrong.
  static std::shared_ptr<GroupMemory> find(const Nonce& nonce);
  static std::shared_ptr<GroupMemory> open(const File& file, const Nonce& expected, const BoardPlan& plan);

  explicit GroupMemory(Mapping mapping) : mapping_(std::move(mapping)) {}

  const Nonce& nonce() const { return mapping_.head().nonce; }
  std::byte* section(const BoardPlan& plan, int64_t rank) const;
  Roll roll(const BoardPlan& plan) const;

  // Whole pages for words by which work on a device waits for that of other ranks: 64 bytes for each rank.
  // Nothing here reads or writes them.
  std::span<std::byte> stream_words(const BoardPlan& plan) const;

  // A rank that is gone does not look at peers' boards any more. A board may be freed when all ranks are
  // gone.
  void say_gone(int64_t rank) const;
  bool is_gone(int64_t rank) const;

 private:
  std::atomic<uint32_t>& gone(int64_t rank) const;

  Mapping mapping_;
};

}  // namespace shardway::shm
