#include "record/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "record/recorder.h"

namespace shardway::testing {
namespace {

using namespace record;

void call(const char* op, uint64_t number) {
  OpenCall open({.op = op, .number = number, .group = 7, .rank = 1, .size = 2, .bytes = 64});
  open.done();
}

TEST(Trace, HoldsTheCallsBetweenItsStartAndItsEndAndNoOthers) {
  call("barrier", 1);
  start_trace();
  for (uint64_t number = 2; number <= 201; ++number) call("all_gather_v", number);
  { const OpenCall failing({.op = "all_reduce", .number = 202, .group = 7}); }
  const Trace trace = take_trace();
  call("barrier", 203);
  ASSERT_EQ(trace.calls.size(), 201U);  // more than the record keeps
  for (size_t i = 0; i < 200; ++i) {
    const RecordedCall& kept = trace.calls[i].call;
    EXPECT_EQ(kept.number, i + 2);
    EXPECT_EQ(kept.op, "all_gather_v");
    EXPECT_EQ(kept.rank, 1);
    EXPECT_EQ(kept.bytes, 64);
    EXPECT_EQ(kept.state, CallState::done);
    EXPECT_EQ(trace.calls[i].thread, gettid());
    if (i > 0) {
      EXPECT_GE(kept.begun_ns, trace.calls[i - 1].call.ended_ns);
    }
    EXPECT_GE(kept.ended_ns, kept.begun_ns);
  }
  EXPECT_EQ(trace.calls.back().call.state, CallState::failed);
  EXPECT_TRUE(take_trace().calls.empty());
}

TEST(Trace, TimesAreFinerThanTheRecordsOwnClock) {
  start_trace();
  for (uint64_t number = 1; number <= 100; ++number) call("barrier", number);
  const Trace trace = take_trace();
  size_t different = 0;
  for (size_t i = 1; i < trace.calls.size(); ++i)
    different += trace.calls[i].call.begun_ns != trace.calls[i - 1].call.begun_ns ? 1 : 0;
  EXPECT_GT(different, 90U);
}

TEST(Trace, AStepThatBeganWithoutATraceIsNotKept) {
  OpenStep step;
  step.begin();
  start_trace();
  step.end({.name = "early"});
  OpenStep earlier;
  earlier.begin();
  start_trace();
  earlier.end({.name = "of the trace before"});
  const int64_t before = precise_ns();
  step.begin();
  step.end({.name = "slice S0 -> R", .bytes = 5, .modelled_us = 2.5});
  step.end({.name = "ended twice"});
  const Trace trace = take_trace();
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps[0].name, "slice S0 -> R");
  EXPECT_EQ(trace.steps[0].bytes, 5);
  EXPECT_GE(trace.steps[0].begun_ns, before);
  EXPECT_GE(trace.steps[0].ended_ns, trace.steps[0].begun_ns);
}

}  // namespace
}  // namespace shardway::testing
