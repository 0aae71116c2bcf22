// What a rank says of its input before a collective, and what it hears of the others'.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shm/arena.h"
#include "shm/part.h"
#include "shm/waiting.h"
#include "shm/ways.h"

namespace shardway::shm {

// A header that cannot be, or that does not fit what this rank expects of the collective.
class BadHeader : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A peer's header, copied before it was looked at: what lies in its memory may change under our eyes.
struct Said {
  Header header = {};
  Dims shape = {};
  Dims strides = {};  // of what `base` points to
  int64_t first = 0;  // the peer's pushes to this rank, among those that it listed
  int64_t end = 0;
};

// Where the elements of a pull are to be read.
struct Source {
  const std::byte* data = nullptr;  // null: they come through a ring, or are read from the peer's process
  Dims strides = {};
  uint64_t address = 0;  // in the peer's process, where they lie row by row; 0: they come through a ring
};

// Puts the header for this collective up, and what rides with it. Gives the path that the others will take.
Path publish(Waiting& waiting, const Arena& arena, uint64_t number, const Part& part, const Ways& ways);

// Puts up a header with a note and no input.
void publish_note(Waiting& waiting, uint64_t number, std::span<const std::byte> note);

// Waits until every peer's header is up. Pairs the acquire with the release in publish.
void meet(Waiting& waiting, uint64_t number);

// Copies what a peer said; throws BadHeader when it cannot be.
Said hear(const Waiting& waiting, uint64_t number, int64_t peer);

// Where the `index`-th pull from a peer is read; throws BadHeader when its box is not in the peer's input.
Source locate(const Waiting& waiting, const Said& said, uint64_t number, const Pull& pull, int64_t index,
              int64_t element_bytes);

// Whether one box goes to every peer.
bool is_for_all(const Part& part, int64_t rank, int64_t size);

}  // namespace shardway::shm
