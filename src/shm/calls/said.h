// What a rank reads of a peer's header. Nothing in it is trusted: it is copied once, and checked against the
// memory that is there before anything is read where it points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "shm/board/board.h"
#include "shm/calls/part.h"

namespace shardway::shm {

// A header that is invalid, or that does not fit what this rank expects of the collective.
class BadHeader : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws a BadHeader: "rank 3 " and `why`.
[[noreturn]] void refuse_header(int64_t peer, const std::string& why);

// What this rank sees of a peer in a collective.
struct Sight {
  uint64_t number = 0;  // of the collective
  int64_t reader = 0;   // this rank
  int64_t peer = 0;
  const Board& board;     // the peer's
  const Board& payloads;  // the one whose section has the peer's payload
  std::span<const std::byte> arena;
};

// Copies bytes of a peer's memory, which are read once.
inline void copy_now(void* mine, const void* theirs, size_t bytes) {
  std::memcpy(mine, theirs, bytes);
  asm volatile("" : : "r"(mine) : "memory");  // the compiler must not read them again later
}

template <class T>
T copied(const T& theirs) {
  T mine;
  copy_now(&mine, &theirs, sizeof(T));
  return mine;
}

// A peer's header, as it was when it was copied.
struct Said {
  Header header = {};
  FixedDims shape = {};
  FixedDims strides = {};  // of what `base` points to
  int64_t first = 0;       // [first, end): the peer's pushes to this rank, among those that it listed
  int64_t end = 0;
};

// Where the elements of a pull are read.
struct Source {
  const std::byte* data = nullptr;  // null: they come through a ring
  FixedDims strides = {};
};

// Throws BadHeader when the peer is in another collective.
Header hear_header(const Sight& sight);

// Throws BadHeader when what the peer said is invalid.
Said hear(const Sight& sight);

// The same for a call of `parts` parts. hear_list returns the header as it was copied, hear_part what the
// peer said about one part.
Header hear_list(const Sight& sight, size_t parts);
Said hear_part(const Sight& sight, const Header& header, size_t index);

// Throws BadHeader unless the peer's input has this shape.
void check_shape(const Said& said, int64_t peer, const FixedDims& shape);

// Where the `index`-th pull from the peer is read; throws BadHeader when its box is not in the peer's input.
Source locate(const Sight& sight, const Said& said, const Pull& pull, int64_t index, int64_t element_bytes);

// A run of bytes that the peer sends to this rank as its only box.
struct Run {
  int64_t from = 0;  // in the peer's input; kUnknown: as the peer says
  int64_t bytes = 0;
  int64_t element_bytes = 1;
  int64_t input_bytes = kUnknown;  // what the peer's input must have; kUnknown: any number
};

// Returns where the run can be read; null if it cannot be read in place, or is not there.
const std::byte* find_run(const Sight& sight, const Header& header, const Run& run);

// Returns the peer's whole input, or null if it comes through a ring. `header` is a copy of the peer's
// header, or one that says the same of what the peer has combined. Throws BadHeader if the input is not where
// it says.
const std::byte* find_input(const Sight& sight, const Header& header);

// Returns the note that came with the peer's header, of which `header` is a copy. Throws BadHeader if the
// note is longer than `most_bytes` or is not where the header says.
std::span<const std::byte> find_note(const Sight& sight, const Header& header, int64_t most_bytes);

}  // namespace shardway::shm
