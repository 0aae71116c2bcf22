// One rank of a way to do collectives, and the loop in which it takes its turns.
#pragma once

#include <cstdint>
#include <string>

#include "ranks/meeting.h"
#include "ranks/task.h"

namespace shardway::bench {

class Contender {
 public:
  virtual ~Contender() = default;

  // Memory for the input and for an output that the caller gives.
  virtual float* input(const Task& task, int64_t elements) = 0;
  virtual float* output(const Task& task, int64_t elements) = 0;

  // The timed part. `out` is null where the contender makes the output; it gives where that is.
  virtual float* call(const Task& task, const float* x, float* out) = 0;

  // Moves on what this rank's call has left to do for others. It is called until every rank is done.
  virtual void progress() {}

  // Gives back what input, output or call gave.
  virtual void release(float* memory) = 0;

  // Gives memory that was kept for later calls back to the system.
  virtual void drop_caches() = 0;

  virtual int64_t input_elements(const Task& task, int64_t rank) const { return task.input_elements(rank); }
  virtual int64_t output_elements(const Task& task, int64_t rank) const { return task.output_elements(rank); }
  virtual float expected(const Task& task, int64_t rank, int64_t i, int64_t turn) const {
    return expected_element(task, rank, i, turn);
  }
};

// Reads tasks from `<path>.<rank>.in`, a line each, until its end, and writes to `<path>.<rank>.out` a line
// with start:end:faults for each timed call, the times in ns, or "error" and why. Gives the exit code.
int serve(Contender& contender, Meeting& meeting, const std::string& path);

}  // namespace shardway::bench
