// How the record of a process lies in its memory file: a head, and a line for each of the last calls.
//
// A line has one writer at a time. The writer makes `sequence` odd, writes the fields, and makes it even
// again. A reader takes the fields between two looks at `sequence`. Both looks must give the same even
// number: then no field changed in between. The fields are atomic, so that a reader may look while they
// change.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/memory/memory_file.h"

namespace shardway::record {

inline constexpr const char* kFileName = "shardway-calls";
inline constexpr shm::Nonce kMagic = {0x7961776472616873U, 0x736c6c61632d2d2dU};  // "shardway" "---calls"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kLines = 64;
inline constexpr size_t kOpBytes = 56;
inline constexpr size_t kJobBytes = 120;
inline constexpr size_t kLauncherBytes = 56;

// Written before the file is sealed, and never again.
struct RecordHead {
  shm::MemoryHead memory;  // begins with kMagic
  uint32_t version;
  int32_t is_of_job;  // the environment says which: rank, size, job and launcher
  int64_t pid;        // as the process itself sees it: a child of fork that holds the file has another
  int64_t rank;
  int64_t size;
  std::array<char, kJobBytes> job;  // ends with a zero, as every text here
  std::array<char, kLauncherBytes> launcher;
};

struct alignas(64) RecordLine {
  std::atomic<uint64_t> sequence;  // 0: never written
  std::atomic<uint64_t> order;     // of all calls of the process
  std::atomic<uint64_t> number;    // of the calls of the group
  std::atomic<uint64_t> group;
  std::atomic<int64_t> bytes;
  std::atomic<int64_t> begun_ns;
  std::atomic<int64_t> ended_ns;
  std::atomic<int32_t> rank;
  std::atomic<int32_t> size;
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> may_span_hosts;
  std::array<std::atomic<uint64_t>, kOpBytes / sizeof(uint64_t)> op;
};
static_assert(sizeof(RecordLine) == 128);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int32_t>::is_always_lock_free);

struct RecordFile {
  alignas(64) RecordHead head;
  std::array<RecordLine, kLines> lines;
};

}  // namespace shardway::record
