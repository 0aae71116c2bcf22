// Collectives of memory without gaps: one box from every rank to every rank, counted in bytes. Inputs that
// are small, or that lie where peers can read them, are handled here without building any lists of boxes.
// Everything else becomes a Part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "shm/calls/group_state.h"
#include "shm/calls/header.h"
#include "shm/calls/part.h"
#include "shm/kernels/small_vector.h"

namespace shardway::shm {

struct ContiguousCall {
  struct Send {
    int64_t begin = 0;  // in the input
    int64_t bytes = 0;
  };
  struct Take {
    int64_t from = 0;  // in the peer's input; kUnknown: as the peer says
    int64_t to = 0;    // in the output
    int64_t bytes = 0;
  };

  int64_t element_bytes = 1;
  const std::byte* input = nullptr;
  int64_t input_bytes = 0;
  std::byte* output = nullptr;
  Few<Send> sends = {};                           // by rank
  Few<Take> takes = {};                           // by rank
  std::optional<Combine> combine = std::nullopt;  // if set: all takes land on one box, combined in rank order
};

// The same call as boxes, which point into the call's memory. Fills `own`, which must outlive the part: the
// part points to it.
Part part_of(const ContiguousCall& call, int64_t rank, Input& own);

// How peers read this rank's input.
Path path_of(const GroupState& state, const ContiguousCall& call);

void await_readers(Waiting& waiting, uint64_t number, const Few<ContiguousCall::Send>& sends);

// The bytes of the input that others take, from the first to the last.
struct TakenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t bytes() const { return end - begin; }
};

// One collective of a rank. `path` is that of the call: finish is for inputs that need no ring, which peers
// read beside the header or in the arena, or not at all.
class ContiguousExecution {
 public:
  ContiguousExecution(GroupState& state, uint64_t number, const ContiguousCall& call, Path path);

  // Puts up a header like the one of the part.
  void publish(std::span<const std::byte> note = {});

  // Must follow the meeting. Returns false if some peer's input has to be read in another way, or if what the
  // peer says does not fit. Then nothing was done, and the part has to be executed.
  bool finish();

  // The same for the first leg of a call of two; but the input must not change before the peers have
  // finished.
  bool finish_leg();
  const ContiguousCall& call() const { return asked_; }
  Path path() const { return path_; }

 private:
  void list_sends(const Lists& lists) const;
  Payload pack(const TakenRange& taken, std::span<const std::byte> note);
  bool find_sources();
  void copy() const;
  void reduce() const;
  void leave();

  GroupState& state_;
  Waiting& waiting_;
  uint64_t number_;
  const ContiguousCall& asked_;
  Path path_;
  Few<int64_t> owners_;            // of the tensors that are read in their arenas
  Few<const std::byte*> sources_;  // by rank; null if nothing is taken
};

}  // namespace shardway::shm
