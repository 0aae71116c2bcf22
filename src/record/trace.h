// A trace of this process: every call that is recorded, and every step of a redistribute, with precise times.
// It is kept in memory until it is taken.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "record/recorded_call.h"

namespace shardway::record {

struct TracedStep {
  std::string name = {};  // "all_gather S0,P -> R,P"
  int64_t bytes = 0;      // that the busiest rank sends
  double modelled_us = 0;
  int64_t begun_ns = 0;
  int64_t ended_ns = 0;
  int64_t thread = 0;
};

struct TracedCall {
  RecordedCall call = {};
  int64_t thread = 0;  // that ended it
};

struct Trace {
  std::vector<TracedCall> calls = {};
  std::vector<TracedStep> steps = {};
  int64_t left_out = 0;  // calls and steps beyond the most that are kept
};

inline constexpr size_t kMostTraced = 1'000'000;  // calls and steps of a process, some 200 MB

// Relaxed: a call that begins or ends at this moment is in the trace or is not.
inline std::atomic<bool> trace_is_on{false};
inline bool is_tracing() { return trace_is_on.load(std::memory_order_relaxed); }

// All processes of the host have the same clock.
int64_t precise_ns();

// Nothing happens without a trace.
void add_to_trace(const RecordedCall& call);

// A step under way, then the next one. Any threads may begin and end it.
class OpenStep {
 public:
  void begin() { begun_ns_ = is_tracing() ? precise_ns() : 0; }
  bool is_traced() const { return begun_ns_ != 0; }

  // Sets times and the thread. A step that began without this trace is not kept.
  void end(TracedStep step);

 private:
  int64_t begun_ns_ = 0;
};

// What was kept before is forgotten.
[[gnu::visibility("default")]] void start_trace();
// Ends the trace.
[[gnu::visibility("default")]] Trace take_trace();

}  // namespace shardway::record
