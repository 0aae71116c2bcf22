#include "record/trace.h"

#include <unistd.h>

#include <ctime>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "shm/memory/fork_mutex.h"

namespace shardway::record {
namespace {

struct KeptTrace {
  shm::ForkMutex mutex;
  Trace trace;
  std::unordered_map<const void*, int64_t> begun_ns;  // steps under way, by their runners
};

KeptTrace& kept() {
  static auto* made = new KeptTrace;  // never destroyed: a call may end after the end of main
  return *made;
}

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

void begin_step(const void* runner) {
  if (!is_tracing()) return;
  const std::lock_guard lock(kept().mutex);
  kept().begun_ns[runner] = precise_ns();
}

void end_step(const void* runner, TracedStep step) {
  if (!is_tracing()) return;
  step.ended_ns = precise_ns();
  step.thread = gettid();
  const std::lock_guard lock(kept().mutex);
  const auto begun = kept().begun_ns.extract(runner);
  if (begun.empty() || !takes_one_more(kept().trace)) return;
  step.begun_ns = begun.mapped();
  kept().trace.steps.push_back(std::move(step));
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
  kept().begun_ns.clear();
  trace_is_on.store(true, std::memory_order_relaxed);
}

Trace take_trace() {
  const std::lock_guard lock(kept().mutex);
  trace_is_on.store(false, std::memory_order_relaxed);
  return std::exchange(kept().trace, {});
}

}  // namespace shardway::record
