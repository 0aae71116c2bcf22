// One collective, from header to result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/calls/header.h"
#include "shm/calls/streams.h"
#include "shm/kernels/small_vector.h"

namespace shardway::shm {

// A part whose pulls are all here.
void run_alone(const Part& part);

// Runs a rank's part as collective `number` of its group. Every header is copied and checked before the first
// byte of the output is written; when it returns, the output is there and the input may change.
class Execution {
 public:
  Execution(Desk& desk, uint64_t number, const Part& part);

  void run();

  // The rest of it, when the part's header is up and all have met.
  void finish_published(Path path);

 private:
  void hear_everybody();
  void open_outgoing();
  void open_incoming();
  void agree_on_slots();
  void open_local();
  std::optional<size_t> pull_of_what_goes_out() const;
  bool copy_local_piece();
  void land_aside();
  void stream();
  bool step();
  bool can_step() const;
  bool is_streamed() const;
  std::vector<int64_t> blockers() const;
  void reduce_piece();
  bool is_in_step() const;
  bool awaits(size_t pull) const {
    return sources_[pull].data == nullptr && volume(part_.pulls[pull].extent) > 0;
  }
  void finish();

  Desk& desk_;
  Waiting& waiting_;
  uint64_t number_;
  const Part& part_;
  Path path_ = Path::none;
  Few<Said> said_;       // by rank
  Few<Source> sources_;  // by pull
  std::optional<Swap> swap_ = std::nullopt;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<std::vector<std::byte>> aside_;  // by pull: what came through a ring and is combined later
  int64_t whole_bytes_ = 0;                    // that this rank pulls
  bool in_step_ = false;                       // pieces of all addends are combined as they come
  std::vector<size_t> local_;                  // the pulls that need no ring, copied between the others
  std::optional<Cursor> local_cursor_;
};

}  // namespace shardway::shm
