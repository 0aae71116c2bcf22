// What a rank says of its input before a collective, and what it hears of the others'.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "shm/calls/group_state.h"
#include "shm/calls/part.h"
#include "shm/calls/said.h"

namespace shardway::shm {

// How an input can be read without rings; nothing where it cannot.
std::optional<Path> direct_path(const GroupState& state, const std::byte* data, int64_t bytes,
                                int64_t bytes_in_memory);

// What rides with a rank's header: a packed input, and from the next line on a note.
struct Payload {
  int64_t base = 0;  // of each, among the payloads
  int64_t note_base = 0;
  int64_t note_bytes = 0;
};

// Makes room for an input of this many bytes, which the caller is to pack, and puts the note there.
Payload place_payload(GroupState& state, uint64_t number, int64_t packed_bytes,
                      std::span<const std::byte> note);

// Puts the header for this collective up, and what rides with it: a note, and a small input. Of the part,
// what others take of this rank is read. Gives the path that they will take.
Path publish(GroupState& state, uint64_t number, const Part& part, std::span<const std::byte> note = {});

// The same for a list of parts, of which there are at most kMostParts, and at most one lists its offsets;
// gives a path for each.
Few<Path> publish(GroupState& state, uint64_t number, const PartList& parts);

// The header is written: it counts from now on.
void enter(GroupState& state, uint64_t number);

// The marks of the headers are not all alike: every rank sees that, and nobody has read anything.
struct OtherCall {};

// Waits until every peer's header is up. Pairs the acquire with the release in enter. Throws OtherCall.
void meet(Waiting& waiting, uint64_t number);

// What this rank sees of a peer in a collective in which both have met.
Sight sight_of(const GroupState& state, uint64_t number, int64_t peer);

// Hands back what this rank has read of the other's payload, where two ranks swap. As much of it as this rank
// sent itself, it will write itself, if the next call is alike.
void hand_back_payload(const GroupState& state, uint64_t number);

// This rank has read what it needed of its peers' tensors, and waits until a peer has.
void say_read(Waiting& waiting, uint64_t number);
void await_reader(Waiting& waiting, int64_t peer, uint64_t number);

// Whether one box goes to every peer.
bool is_for_all(const Part& part, int64_t rank, int64_t size);

}  // namespace shardway::shm
