// Plain memory between hosts: ranks are threads, and those of a host share memory.
#include "spans/two_level_spans.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <numeric>
#include <thread>

#include "plan/hosts/hosts_all_reduce.h"
#include "rank_runner.h"
#include "shm/memory/arena.h"
#include "thread_engine.h"

namespace shardway::testing {
namespace {

using Labels = std::vector<int64_t>;
using Ints = std::vector<int64_t>;
using Body = std::function<void(TwoLevelSpans& group)>;

constexpr auto kTimeout = std::chrono::seconds(20);

struct SpanRun {
  bool is_lazy = false;
  std::chrono::milliseconds timeout = kTimeout;
};

// Gives the first exception on.
void run(const Labels& labels, const std::shared_ptr<ThreadPost>& post, const Body& body,
         const SpanRun& options = {}) {
  const HostMap hosts(labels);
  run_threads_apart(hosts.ranks(), [&](int64_t rank, const ExchangeAmong& among) {
    const auto& mates = hosts.ranks_of(hosts.host_of(rank));
    shm::JoinedGroup own = shm::SharedGroup::join({.rank = hosts.place_of(rank),
                                                   .size = static_cast<int64_t>(mates.size()),
                                                   .exchange = among(mates),
                                                   .arena = shm::Arena::create(int64_t{1} << 28),
                                                   .timeout = options.timeout});
    if (!own.group) throw std::runtime_error(own.why_not);
    // A host of one rank may have no memory to share: then there is no group.
    const bool is_alone = mates.size() == 1;
    const auto engine = std::make_shared<ThreadEngine>(post, rank);
    engine->is_lazy = options.is_lazy;
    TwoLevelSpans group({.labels = labels, .own = is_alone ? nullptr : own.group}, engine, options.timeout);
    body(group);
    group.meet({.mark = 99});  // nobody leaves before the others are done
  });
}

int32_t element(int64_t rank, int64_t i) { return static_cast<int32_t>(1009 * rank + i); }

std::vector<int32_t> input_of(int64_t rank, int64_t count) {
  std::vector<int32_t> input(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) input[static_cast<size_t>(i)] = element(rank, i);
  return input;
}

SpanMemory memory_of(const std::vector<int32_t>& from, std::vector<int32_t>& to) {
  return {.input = reinterpret_cast<const std::byte*>(from.data()),
          .output = reinterpret_cast<std::byte*>(to.data()),
          .element_bytes = 4};
}

Ints ragged(int64_t ranks, int64_t scale) {
  Ints sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back(rank * scale);
  return sizes;
}

int64_t total(const Ints& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }

void gather(TwoLevelSpans& group, const Ints& sizes) {
  const Split split{.shape = {0}, .sizes = sizes};
  const auto mine = input_of(group.rank(), split.sizes[static_cast<size_t>(group.rank())]);
  std::vector<int32_t> all(static_cast<size_t>(total(split.sizes)));
  group.run([&](int64_t rank) { return all_gather_route(split, rank); }, memory_of(mine, all), {.mark = 1});
  std::vector<int32_t> expected;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const auto part = input_of(rank, split.sizes[static_cast<size_t>(rank)]);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  require(all == expected, "another gather");
}

void reduce(TwoLevelSpans& group, const Ints& sizes) {
  const Split split{.shape = {0}, .sizes = sizes};
  const auto own = static_cast<size_t>(group.rank());
  const auto whole = input_of(group.rank(), total(split.sizes));
  std::vector<int32_t> sums(static_cast<size_t>(split.sizes[own]));
  SpanMemory memory = memory_of(whole, sums);
  memory.combine = shm::Combine{.element = shm::Element::i32};
  group.run([&](int64_t rank) { return reduce_scatter_route(split, rank); }, memory, {.mark = 2});
  const int64_t begin = total({split.sizes.begin(), split.sizes.begin() + group.rank()});
  for (size_t i = 0; i < sums.size(); ++i) {
    int32_t expected = 0;
    for (int64_t rank = 0; rank < group.size(); ++rank)
      expected += element(rank, begin + static_cast<int64_t>(i));
    require(sums[i] == expected, "another sum");
  }
}

// In place: the sums end in the input.
void reduce_all(TwoLevelSpans& group, int64_t count) {
  const auto routes_of = [&](int64_t rank) {
    return all_reduce_routes({.elements = count, .element_bytes = 4, .sum_bytes = 4}, rank, group.hosts());
  };
  std::vector<int32_t> x = input_of(group.rank(), count);
  SpanMemory whole = memory_of(x, x);
  SpanMemory share = whole;
  share.output += routes_of(group.rank()).landing.offset[0] * share.element_bytes;
  share.combine = shm::Combine{.element = shm::Element::i32};
  whole.input = share.output;
  group.run({{.route_of = [&](int64_t rank) { return routes_of(rank).combination; }, .memory = share},
             {.route_of = [&](int64_t rank) { return routes_of(rank).collection; }, .memory = whole}},
            {.mark = 4});
  for (int64_t i = 0; i < count; ++i) {
    int32_t expected = 0;
    for (int64_t rank = 0; rank < group.size(); ++rank) expected += element(rank, i);
    require(x[static_cast<size_t>(i)] == expected, "another sum of all");
  }
}

void exchange(TwoLevelSpans& group, int64_t scale) {
  const int64_t own = group.rank();
  const auto count = [scale](int64_t from, int64_t to) { return scale * ((from + 2 * to) % 3); };
  const auto begin = [&](int64_t from, int64_t to) {
    int64_t sent = 0;
    for (int64_t peer = 0; peer < to; ++peer) sent += count(from, peer);
    return sent;
  };
  AllToAllSizes sizes;
  std::vector<int32_t> expected;
  for (int64_t peer = 0; peer < group.size(); ++peer) {
    sizes.send.push_back(count(own, peer));
    sizes.recv.push_back(count(peer, own));
    for (int64_t i = 0; i < count(peer, own); ++i) expected.push_back(element(peer, begin(peer, own) + i));
  }
  const auto x = input_of(own, total(sizes.send));
  std::vector<int32_t> received(static_cast<size_t>(total(sizes.recv)));
  group.run_all_to_all(sizes, memory_of(x, received), {.mark = 3});
  require(received == expected, "another exchange");
}

class SpansOnKindsOfHosts : public ::testing::TestWithParam<Labels> {};

TEST_P(SpansOnKindsOfHosts, EveryRouteGivesWhatOneHostWould) {
  const auto post = std::make_shared<ThreadPost>(static_cast<int64_t>(GetParam().size()));
  EXPECT_NO_THROW(run(GetParam(), post, [](TwoLevelSpans& group) {
    for (const int64_t scale : {1, 0, 5003}) {
      gather(group, ragged(group.size(), scale));
      reduce(group, ragged(group.size(), scale));
      exchange(group, scale);
      reduce_all(group, 7 * scale);
    }
  }));
}

TEST_P(SpansOnKindsOfHosts, RanksInDifferentCallsAllHearOfItAndGoOn) {
  const auto post = std::make_shared<ThreadPost>(static_cast<int64_t>(GetParam().size()));
  EXPECT_NO_THROW(run(GetParam(), post, [](TwoLevelSpans& group) {
    const bool is_last = group.rank() + 1 == group.size();
    const shm::Subject subject{.mark = is_last ? 5U : 6U,
                               .words = [&] { return std::string(is_last ? "a barrier" : "a gather"); }};
    std::string said;
    try {
      group.meet(subject);
    } catch (const shm::Disagreement& error) {
      said = error.what();
    }
    const std::string last = std::to_string(group.size() - 1);
    require(said == "ranks called different collectives: a gather on rank 0, a barrier on rank " + last,
            said);
    gather(group, ragged(group.size(), 3));
  }));
}

INSTANTIATE_TEST_SUITE_P(, SpansOnKindsOfHosts,
                         ::testing::Values(Labels{0, 1}, Labels{0, 0, 1}, Labels{0, 1, 0, 1},
                                           Labels{0, 0, 0, 1, 1, 2}));

// Hosts {0, 1} and {2, 3}: what both ranks of a host want, and what both add, crosses once.
TEST(SpansOnHosts, EachByteCrossesOnce) {
  const Labels labels = {0, 0, 1, 1};
  const auto crossed_by = [&](const Body& body) {
    const auto post = std::make_shared<ThreadPost>(4);
    run(labels, post, body);
    int64_t bytes = 0;
    for (const int64_t from : {0, 1}) {
      for (const int64_t to : {2, 3}) bytes += post->sent_bytes(from, to);
    }
    return bytes;
  };
  constexpr int64_t kWords = 4 * 1024;  // two meetings
  const int64_t gathered =
      crossed_by([](TwoLevelSpans& group) { gather(group, ragged(group.size(), 10000)); });
  EXPECT_GE(gathered, 4 * 10000);  // ranks 0 and 1 have 0 and 10000 numbers
  EXPECT_LE(gathered, 4 * 10000 + kWords);
  const int64_t reduced =
      crossed_by([](TwoLevelSpans& group) { reduce(group, ragged(group.size(), 10000)); });
  EXPECT_GE(reduced, 4 * 50000);  // ranks 2 and 3 want 20000 and 30000
  EXPECT_LE(reduced, 4 * 50000 + kWords);
}

// Open MPI moves what it has queued only while it is called: a rank that has sent, and waits in shared memory
// for one that waits for a message from another host, must call it. Here one rank of each host receives, and
// the other may only send.
TEST(SpansOnHosts, AnEngineThatMovesOnlyWhileItIsCalledDoesNotStandStill) {
  const auto calls = [](TwoLevelSpans& group) {
    for (const int64_t count : {1, 100, 20'000}) {
      for (const Ints& sizes :
           {Ints{0, count, 0, count}, Ints{count, 0, count, 0}, Ints{0, count, count, 0}}) {
        reduce(group, sizes);
        gather(group, sizes);
      }
    }
  };
  run({0, 0, 1, 1}, std::make_shared<ThreadPost>(4), calls, {.is_lazy = true});
}

TEST(SpansOnHosts, ARankThatFailsIsNamedOnEveryOther) {
  const auto post = std::make_shared<ThreadPost>(4);
  std::array<std::string, 4> said;
  const auto body = [&](TwoLevelSpans& group) {
    const auto own = static_cast<size_t>(group.rank());
    try {
      group.meet({.mark = 1});
      const auto route_of = [&](int64_t rank) -> Route {
        if (group.rank() == 1) throw std::runtime_error("no memory");
        return all_gather_route({.shape = {0}, .sizes = Ints(4, 1000)}, rank);
      };
      const auto mine = input_of(group.rank(), 1000);
      std::vector<int32_t> all(4000);
      group.run(route_of, memory_of(mine, all), {.mark = 2});
    } catch (const std::runtime_error& error) {
      said[own] = error.what();
    }
  };
  EXPECT_ANY_THROW(run({0, 0, 1, 1}, post, body));  // the meeting at the end
  EXPECT_EQ(said[1], "no memory");
  for (const size_t rank : {0, 2, 3}) EXPECT_EQ(said[rank], "rank 1 could not be reached: no memory") << rank;
}

// Rank 1 waits in memory for rank 0, which comes later and waits for rank 2 on the other host. The time of
// rank 1 is over first; it is rank 2 who does not come.
TEST(SpansOnHosts, ARankThatWaitsForAnotherHostIsNotBlamed) {
  const auto post = std::make_shared<ThreadPost>(3);
  std::array<std::string, 2> said;
  std::atomic<int> raised = 0;
  const auto body = [&](TwoLevelSpans& group) {
    if (group.rank() == 2) {
      while (raised < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      throw std::runtime_error("never came");
    }
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    try {
      group.meet({.mark = 1});
    } catch (const std::runtime_error& error) {
      said.at(static_cast<size_t>(group.rank())) = error.what();
      ++raised;
      throw;
    }
  };
  EXPECT_ANY_THROW(run({0, 0, 1}, post, body, {.timeout = std::chrono::seconds(2)}));
  for (const std::string& text : said)
    EXPECT_EQ(text, "rank 2 could not be reached: nothing came from it, or was taken by it, within 2000 ms");
}

}  // namespace
}  // namespace shardway::testing
