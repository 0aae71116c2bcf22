#include "record/trace.h"

#include <unistd.h>

#include <ctime>
#include <mutex>
#include <utility>

#include "shm/memory/fork_mutex.h"

namespace shardway::record {
namespace {

struct KeptTrace {
  shm::ForkMutex mutex;
  Trace trace;
  int64_t started_ns = 0;
};

KeptTrace& kept() {
  static auto* made = new KeptTrace;  // never destroyed: a call may end after the end of main
  return *made;
}

[[maybe_unused]] const KeptTrace& trace_at_load = kept();

// Whether there is room for one more.
bool takes_one_more(Trace& trace) {
  if (trace.calls.size() + trace.steps.size() < kMostTraced) return true;
  ++trace.left_out;
  return false;
}

}  // namespace

int64_t precise_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void OpenStep::end(TracedStep step) {
  if (!is_traced()) return;
  step.begun_ns = std::exchange(begun_ns_, 0);
  step.ended_ns = precise_ns();
  step.thread = gettid();
  const std::lock_guard lock(kept().mutex);
  const bool is_of_this_trace = is_tracing() && step.begun_ns >= kept().started_ns;
  if (is_of_this_trace && takes_one_more(kept().trace)) kept().trace.steps.push_back(std::move(step));
}

void add_to_trace(const RecordedCall& call) {
  const int64_t thread = gettid();
  const std::lock_guard lock(kept().mutex);
  if (is_tracing() && takes_one_more(kept().trace))
    kept().trace.calls.push_back({.call = call, .thread = thread});
}

void start_trace() {
  const std::lock_guard lock(kept().mutex);
  kept().trace = {};
  kept().started_ns = precise_ns();
  trace_is_on.store(true, std::memory_order_relaxed);
}

Trace take_trace() {
  const std::lock_guard lock(kept().mutex);
  trace_is_on.store(false, std::memory_order_relaxed);
  return std::exchange(kept().trace, {});
}

}  // namespace shardway::record
