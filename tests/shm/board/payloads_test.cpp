#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "shm/board/board.h"

namespace shardway::shm {
namespace {

struct Placed {
  int64_t begin;
  int64_t end;
};

bool meet(const Placed& a, const Placed& b) { return a.begin < b.end && b.begin < a.end; }

// Of each call its input, and then in some its share of a reduction (shm/model/payloads.pml).
RC_GTEST_PROP(Payloads, NothingLiesOnWhatMayStillBeRead, ()) {
  const int64_t ranks = *rc::gen::element<int64_t>(3, 4, 8, 16, 200, 1024);
  const int64_t most = inline_bytes(ranks, /*every_rank_has_a_core=*/true);
  const BoardPlan plan(ranks);
  std::vector<std::byte> section(static_cast<size_t>(plan.payload_bytes()));
  const Board board(nullptr, section.data(), plan);
  Payloads payloads;
  std::vector<Placed> readable;
  const auto place = [&](uint64_t call, int64_t bytes) {
    const int64_t begin = payloads.place(board, call, bytes, *rc::gen::arbitrary<bool>());
    RC_ASSERT(begin >= 0);
    RC_ASSERT(begin + bytes <= plan.payload_bytes());
    for (const Placed& other : readable) RC_ASSERT(!meet(other, {begin, begin + bytes}));
    return Placed{begin, begin + bytes};
  };
  const auto any_bytes = [&](int64_t limit) {
    return *rc::gen::element(int64_t{1}, kNearBytes, kFrontPayload, limit,
                             *rc::gen::inRange<int64_t>(1, limit));
  };
  for (uint64_t call = 0; call < 40; ++call) {
    const Placed input = place(call, any_bytes(most + kNoteBytes));
    readable = {input};  // all have met: nobody reads what the call before placed
    if (!*rc::gen::arbitrary<bool>()) continue;
    const int64_t bytes = any_bytes(most);
    if (bytes > kNearBytes) readable.push_back(place(call, bytes));
  }
}

TEST(Payloads, WhatEveryPeerReadsLiesFarFromTheRest) {
  const BoardPlan plan(8);
  std::vector<std::byte> section(static_cast<size_t>(plan.payload_bytes()));
  const Board board(nullptr, section.data(), plan);
  Payloads payloads;
  EXPECT_FALSE(payloads.is_far(board, payloads.place(board, 0, 16 << 10, /*is_far=*/false)));
  EXPECT_TRUE(payloads.is_far(board, payloads.place(board, 1, 16 << 10, /*is_far=*/true)));
  EXPECT_TRUE(payloads.is_far(board, payloads.place(board, 2, kFrontPayload + 1, /*is_far=*/false)));
  EXPECT_FALSE(payloads.is_far(board, payloads.place(board, 3, 100, /*is_far=*/true)));
}

}  // namespace
}  // namespace shardway::shm
