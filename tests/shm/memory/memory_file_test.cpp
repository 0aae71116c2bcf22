// What others can do with a rank's memory, and whose memory is taken for a peer's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>
#include <system_error>

#include "shm/memory/arena.h"
#include "shm/memory/peer.h"
#include "shm/memory/process.h"

namespace shardway::shm {
namespace {

// What a member holds of a peer's arena: it reads, and cannot write in any way.
TEST(MemoryFile, OfAnArenaIsWrittenByItsOwnerAlone) {
  const auto arena = Arena::create(1 << 26);
  std::byte* block = arena->allocate(4096);
  block[0] = std::byte(5);
  const std::string path = "/proc/self/fd/" + std::to_string(arena->fd());
  const File again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  EXPECT_EQ(pwrite(again.get(), "x", 1, 4096), -1);
  EXPECT_EQ(fallocate(again.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20), -1);
  EXPECT_EQ(ftruncate(again.get(), 4096), -1);
  const Peer peer(again, handle_of_process(), arena->nonce());
  EXPECT_EQ(mprotect(const_cast<std::byte*>(peer.base()), 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(peer.base()[arena->offset_of(block)], std::byte(5));
  block[0] = std::byte(6);
  EXPECT_EQ(peer.base()[arena->offset_of(block)], std::byte(6));
}

std::string refusal_of(const File& file, const Nonce& expected) {
  try {
    map_of_peer(file, Mapping::Access::read, expected);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(MemoryFile, WhoseSizeIsNotFixedIsRefused) {
  std::array<char, 32> name{"/tmp/shardway-test-XXXXXX"};
  const File plain(mkstemp(name.data()));  // one that has no seals at all
  unlink(name.data());
  ASSERT_EQ(ftruncate(plain.get(), 1 << 16), 0);
  EXPECT_EQ(refusal_of(plain, {}), "its memory could shrink");
  const File open = new_memory_file();
  set_size(open, 1 << 16);
  EXPECT_EQ(refusal_of(open, {}), "its memory could shrink");
  seal(open, Writers::anybody);
  EXPECT_EQ(refusal_of(open, {}), "nothing");
  EXPECT_EQ(refusal_of(open, {1, 2}),
            "the memory is another's: 00000000000000010000000000000002 was expected in it, "
            "00000000000000000000000000000000 was found");
}

TEST(MemoryFile, ThatCannotBeSealedIsAnError) {
  const File plain(memfd_create("unsealable", MFD_CLOEXEC));
  EXPECT_THROW(seal(plain, Writers::those_there_are), std::system_error);
}

}  // namespace
}  // namespace shardway::shm
