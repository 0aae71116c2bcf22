// What a rank says about its input before a collective, and what it hears about the others' inputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "shm/calls/group_state.h"
#include "shm/calls/part.h"
#include "shm/calls/said.h"
#include "shm/kernels/copy.h"

namespace shardway::shm {

// Returns how an input can be read without rings, or nothing if it cannot.
std::optional<Path> direct_path(const GroupState& state, const std::byte* data, int64_t bytes,
                                int64_t bytes_in_memory);

// What rides with a rank's header: a packed input, and a note that begins at the next line.
struct Payload {
  int64_t base = 0;  // an offset among the payloads
  NotePlace note = {};
};

// Makes room for an input of this many bytes, which the caller packs, and puts the note behind it.
// `is_for_all`: every peer reads all of the input.
Payload place_payload(GroupState& state, uint64_t number, int64_t packed_bytes, bool is_for_all,
                      std::span<const std::byte> note);

// Puts up the header for this collective and what rides with it: a note and a small input. Of the part, it
// reads only the input and the pushes. Returns the path by which the others read the input.
Path publish(GroupState& state, uint64_t number, const Part& part, std::span<const std::byte> note = {});

// The same for a list of at most kMostParts parts, at most one of which lists its offsets. Returns a path for
// each.
Few<Path> publish(GroupState& state, uint64_t number, const PartList& parts);

// Puts what others take of an input inside the page: all but the first bytes, which go into the header.
inline void put_inside(const GroupState& state, uint64_t number, const std::byte* input, int64_t bytes,
                       Header& header) {
  const int64_t first = std::min(bytes, int64_t{sizeof header.inside});
  copy_bytes(state.waiting->own().inside(number) + first, input + first, bytes - first);
  if (first == sizeof header.inside) {
    std::memcpy(&header.inside, input, sizeof header.inside);
  } else {
    std::memcpy(&header.inside, input, static_cast<size_t>(first));
  }
}

// Writes this rank's header, but for its number and its mark, which are filled in here, and so announces it.
// What lies behind the header is written before: the peers poll the header's line, and each look takes it
// away, so the line is written last and all at once. In line, so that the fields need not be copied.
inline void enter(const GroupState& state, uint64_t number, const Header& header) {
  const Waiting& waiting = *state.waiting;
  Header& shown = waiting.own().header(number);
  shown.mark = state.mark;
  shown.path = header.path;
  shown.dims = header.dims;
  shown.for_all = header.for_all;
  shown.is_listed = header.is_listed;
  shown.element_bytes = header.element_bytes;
  shown.base = header.base;
  shown.span_bytes = header.span_bytes;
  shown.note = header.note;
  shown.inside = header.inside;
  // Release: pairs with the acquire in meet(). The page and the payload are written before it, and this rank
  // has read all that it reads of others' memory in the last call.
  waiting.own().entered(number).store(number, std::memory_order_release);
  waiting.show_core();  // a hint, for which nobody waits
  waiting.ring();
}

// Thrown if the marks of the headers differ. Every rank sees that, and nobody has read anything.
struct OtherCall {};

// Waits until every peer's header is up. Its acquire pairs with the release in enter. Throws OtherCall if the
// marks differ.
void meet(const GroupState& state, uint64_t number);

// What this rank sees of a peer in a collective in which both have met.
Sight sight_of(const GroupState& state, uint64_t number, int64_t peer);

// If two ranks swap and hand back, hands back what this rank has read of the other's payload, except for as
// many bytes as this rank sent: it will write those itself if the next call is alike.
void hand_back_payload(const GroupState& state, uint64_t number);

// say_read says that this rank has read what it needs of its peers' tensors. await_reader waits until a peer
// has said so.
void say_read(Waiting& waiting, uint64_t number);
void await_reader(Waiting& waiting, int64_t peer, uint64_t number);
void await_readers(Waiting& waiting, uint64_t number, const Few<Push>& pushes);  // of those to other ranks

// How peers read what a rank has combined in the first leg of a call (legs.h), and where it begins: an offset
// in the arena or among the payloads; otherwise unused.
struct Combined {
  Path path = Path::none;
  int64_t base = 0;
};

// say_combined says that this rank has combined its share. await_combined waits until a peer has said so.
void say_combined(Waiting& waiting, uint64_t number, const Combined& combined);
Combined await_combined(Waiting& waiting, int64_t peer, uint64_t number);

// Whether one box goes to every peer.
bool is_for_all(const Part& part, int64_t rank, int64_t size);

}  // namespace shardway::shm
