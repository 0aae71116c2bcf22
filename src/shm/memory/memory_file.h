// Memory that processes share: files without a name, and views of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shm/memory/file.h"

namespace shardway::shm {

// A random number that nobody else has and nobody can guess.
using Nonce = std::array<uint64_t, 2>;
Nonce random_nonce();
std::string text_of(const Nonce& nonce);

// The beginning of a shared file. Whoever maps the file reads the nonce to know that it is the right memory.
struct MemoryHead {
  Nonce nonce;
  int64_t size;
};

// A file's bytes as mapped by this process, left out of its core dumps. Throws std::system_error.
class Mapping {
 public:
  enum class Access : uint8_t { read, write };

  Mapping() = default;
  Mapping(const File& file, int64_t bytes, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const MemoryHead& head() const { return *reinterpret_cast<const MemoryHead*>(data_); }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// An empty, sparse file. /proc shows the name; nothing is found by it. Throws std::system_error.
File new_memory_file(const char* name = "shardway");
void set_size(const File& file, int64_t bytes);

// Fixes the size of the file for ever. With those_there_are, only mappings that exist already can write it;
// with anybody, later ones can as well.
enum class Writers : uint8_t { those_there_are, anybody };
void seal(const File& file, Writers writers);

// Whether [offset, offset + bytes) lies in memory of this size, whatever the numbers are.
inline bool lies_within(int64_t size, int64_t offset, int64_t bytes) {
  return offset >= 0 && bytes >= 0 && bytes <= size && offset <= size - bytes;
}

// Maps all of a peer's file. Throws std::runtime_error unless it is ordinary memory of a fixed size, so that
// reading it cannot raise a signal, and begins with this nonce.
Mapping map_of_peer(const File& file, Mapping::Access access, const Nonce& expected);

}  // namespace shardway::shm
