// Collectives written down as lists of moves, run over shared memory and compared with a plain loop.
#pragma once

#include <cstdint>
#include <vector>

#include "shm/group/group.h"

namespace shardway::testing {

using Shape = std::vector<int64_t>;

// The box of `extent` at `source` in rank `from`'s input goes to `target` in rank `to`'s output.
struct Moved {
  int64_t from = 0;
  Shape source = {};
  int64_t to = 0;
  Shape target = {};
  Shape extent = {};
};

// Where a rank's input lies.
enum class Where { anywhere, arena };

struct Scenario {
  std::vector<Shape> inputs = {};   // by rank
  std::vector<Shape> outputs = {};  // by rank
  std::vector<Moved> moves = {};    // ordered by `from` for every `to`
  bool adds = false;                // several may land on one element
  bool is_reduce_scatter = false;   // and every rank knows all boxes
  std::vector<Where> where = {};    // by rank; empty: anywhere
  bool offsets_known = true;
  bool is_transposed = false;  // the inputs' dims lie in memory the other way round
};

// Elements are int32. Runs this rank's part `times` times, each with other values, and throws
// std::runtime_error where an element of the output differs from the reference or an input has changed.
void run_scenario(shm::SharedGroup& group, const Scenario& scenario, int times = 1);

// The same for several, each with a tensor of its own, in one call.
void run_scenarios_at_once(shm::SharedGroup& group, const std::vector<Scenario>& scenarios, int times = 1);

Scenario gather(const Shape& shape, int64_t dim, const std::vector<int64_t>& sizes);
Scenario reduce_scatter(const Shape& shape, int64_t dim, const std::vector<int64_t>& sizes);
Scenario all_to_all(int64_t ranks, int64_t rows, int64_t columns);

}  // namespace shardway::testing
