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

// Runs a part whose pulls all name an input that this rank has (Pull::here).
void run_alone(const Part& part);

// Runs a rank's part, or its parts of a list, as collective `number` of its group. The header is up and all
// ranks have met. Every header is copied and checked before the first byte of an output is written. When run
// returns, the outputs are complete and the inputs may change.
class Execution {
 public:
  Execution(GroupState& state, uint64_t number, const Part& part, Path path);
  Execution(GroupState& state, uint64_t number, const PartList& parts, const Few<Path>& paths);

  void run();

  // The same for one leg of a call, in which `said`, by rank, holds for all parts; but the inputs must not
  // change before the peers have finished.
  void run_leg(const Few<Said>& said);

 private:
  // A landing whose addends are combined piece by piece, as they come.
  struct Sum {
    size_t part = 0;
    const PartLanding* landing = nullptr;
    std::vector<size_t> incoming = {};  // the streams that bring addends, in the order of the addends
  };

  void hear_everybody();
  void move();
  void locate_pulls(size_t part, const Few<Said>& said);
  void open_outgoing();
  void open_incoming();
  void find_sums(size_t part);
  void find_streams(Sum& sum) const;
  bool waits_aside(size_t source) const;
  void set_aside();
  void agree_on_slots();
  void open_local();
  std::optional<size_t> pull_of_what_goes_out() const;
  bool copy_local_piece();
  void land_rest();
  void stream();
  bool step();
  bool can_step() const;
  bool is_streamed() const;
  std::vector<int64_t> blockers() const;
  void reduce_piece(const Sum& sum);
  bool is_in_step(size_t part) const;
  bool has_awaited(size_t part, const PartLanding& landing) const;
  bool has_next_of(size_t incoming) const;
  bool awaits(size_t source) const;
  BoxSize size_of(size_t source) const;
  Place place_of(size_t source) const;
  void finish();

  // A pull of one of the parts.
  struct Drawn {
    size_t part = 0;
    const Pull* pull = nullptr;
  };

  GroupState& state_;
  Waiting& waiting_;
  uint64_t number_;
  PartList parts_;
  Few<Path> paths_;             // by part
  Few<Drawn> drawn_;            // the pulls of all parts, one part after the other
  Few<Source> sources_;         // of these
  Few<size_t> first_drawn_;     // by part
  Few<uint8_t> comes_for_all_;  // by rank: whether what it sends comes through its ring for everybody
  Few<int64_t> owners_;         // of the inputs that are read in their arenas; one may be there twice
  std::optional<Swap> swap_ = std::nullopt;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  Few<Place> aside_;           // by source: where it waits until it is combined; empty if none does
  int64_t whole_bytes_ = 0;    // all that this rank pulls
  std::vector<bool> in_step_;  // by part: whether its landings are sums; empty if nothing comes through rings
  std::vector<Sum> sums_;
  std::vector<std::optional<size_t>> sum_of_;  // by source
  std::vector<size_t> local_;  // the sources that need no ring, copied between pieces of the others
  std::optional<Cursor> local_cursor_;
};

}  // namespace shardway::shm
