// Groups of unequal sizes and lifetimes that come and go in any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <numeric>

#include "dice.h"
#include "effort.h"
#include "rank_runner.h"
#include "shm/calls/all_reduce.h"

namespace shardway::testing {
namespace {

using Ints = std::vector<int64_t>;
using Numbers = std::vector<int32_t>;

constexpr int64_t kRanks = 3;
constexpr int64_t kMostGroups = 6;

// SHARDWAY_CHURN_ROUNDS gives another number: 100000 are some minutes.
int64_t rounds_of(int64_t usual) {
  const char* given = std::getenv("SHARDWAY_CHURN_ROUNDS");
  return given != nullptr ? std::atoll(given) : tries(usual);
}

// What element i of a rank's input is in a call.
int32_t element(int64_t call, int64_t rank, int64_t i) {
  return static_cast<int32_t>((i * 2654435761 + call * 7919 + rank * 977) % 100'003);
}

// Numbers of elements around the bytes at which one way of moving gives way to another (thresholds.h).
int64_t any_count(Dice& dice) {
  static const Ints bytes = {0,        64,       128,      1 << 10,   2 << 10,   8 << 10,
                             16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 600 << 10};
  return std::max<int64_t>(0, dice.any_of(bytes) / 4 + dice.between(int64_t{-1}, int64_t{1}));
}

// A rank's input, in its arena or in private memory.
class Input {
 public:
  Input(shm::Arena& arena, bool is_shared, int64_t call, int64_t rank, int64_t count)
      : arena_(arena), private_(is_shared ? 0 : static_cast<size_t>(count)), count_(count) {
    if (is_shared) shared_ = arena.allocate(4 * count);
    for (int64_t i = 0; i < count; ++i) data()[i] = element(call, rank, i);
  }
  ~Input() {
    if (shared_ != nullptr) arena_.free(shared_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  int32_t* data() { return shared_ != nullptr ? reinterpret_cast<int32_t*>(shared_) : private_.data(); }
  const std::byte* bytes() { return reinterpret_cast<const std::byte*>(data()); }
  int64_t count() const { return count_; }

 private:
  shm::Arena& arena_;
  Numbers private_;
  std::byte* shared_ = nullptr;
  int64_t count_;
};

std::byte* bytes_of(Numbers& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); }

void require_equal(const Numbers& found, const Numbers& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] != expected[i])
      throw std::runtime_error(what + ": element " + std::to_string(i) + " of " +
                               std::to_string(expected.size()) + " is " + std::to_string(found[i]) +
                               ", not " + std::to_string(expected[i]));
  }
}

int64_t sum_of(const Ints& sizes, int64_t end) {
  return std::accumulate(sizes.begin(), sizes.begin() + end, int64_t{0});
}

// One call of a group, the same on all of its ranks: what it is, and how much of it each rank has.
struct Call {
  int64_t number = 0;
  Ints sizes = {};
  std::vector<bool> is_shared = {};  // by rank
};

void check_gather(shm::SharedGroup& group, const Call& call) {
  const int64_t size = group.size();
  Input input(*group.arena(), call.is_shared[static_cast<size_t>(group.rank())], call.number, group.rank(),
              call.sizes[static_cast<size_t>(group.rank())]);
  Numbers found(static_cast<size_t>(sum_of(call.sizes, size)));
  Numbers expected;
  shm::ContiguousCall moved{.element_bytes = 4,
                            .input = input.bytes(),
                            .input_bytes = 4 * input.count(),
                            .output = bytes_of(found)};
  for (int64_t peer = 0; peer < size; ++peer) {
    const int64_t count = call.sizes[static_cast<size_t>(peer)];
    moved.sends.push_back({.begin = 0, .bytes = 4 * input.count()});
    moved.takes.push_back({.from = 0, .to = 4 * static_cast<int64_t>(expected.size()), .bytes = 4 * count});
    for (int64_t i = 0; i < count; ++i) expected.push_back(element(call.number, peer, i));
  }
  group.run(moved);
  require_equal(found, expected, "gather " + std::to_string(call.number));
}

Numbers summed(const Call& call, int64_t ranks, int64_t begin, int64_t count) {
  Numbers sums(static_cast<size_t>(count), 0);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += element(call.number, rank, begin + i);
  }
  return sums;
}

void reduce_scatter(shm::SharedGroup& group, const Call& call) {
  const int64_t begin = sum_of(call.sizes, group.rank());
  const int64_t count = call.sizes[static_cast<size_t>(group.rank())];
  Input input(*group.arena(), call.is_shared[static_cast<size_t>(group.rank())], call.number, group.rank(),
              sum_of(call.sizes, group.size()));
  Numbers found(static_cast<size_t>(count));
  shm::ContiguousCall moved{.element_bytes = 4,
                            .input = input.bytes(),
                            .input_bytes = 4 * input.count(),
                            .output = bytes_of(found),
                            .combine = shm::Combine{.element = shm::Element::i32}};
  int64_t sent = 0;
  for (int64_t peer = 0; peer < group.size(); ++peer) {
    const int64_t bytes = 4 * call.sizes[static_cast<size_t>(peer)];
    moved.sends.push_back({.begin = sent, .bytes = bytes});
    moved.takes.push_back({.from = 4 * begin, .to = 0, .bytes = 4 * count});
    sent += bytes;
  }
  group.run(moved);
  require_equal(found, summed(call, group.size(), begin, count),
                "reduce-scatter " + std::to_string(call.number));
}

void all_reduce(shm::SharedGroup& group, const Call& call) {
  const int64_t count = call.sizes[0];
  Input input(*group.arena(), call.is_shared[static_cast<size_t>(group.rank())], call.number, group.rank(),
              count);
  Numbers found(static_cast<size_t>(count));
  group.run(shm::AllReduce{.input = input.bytes(),
                           .output = bytes_of(found),
                           .bytes = 4 * count,
                           .how = shm::Combine{.element = shm::Element::i32}});
  require_equal(found, summed(call, group.size(), 0, count), "all-reduce " + std::to_string(call.number));
}

constexpr std::array kCalls = {check_gather, reduce_scatter, all_reduce};

// How a member parts from a group: it says that it leaves in one round, as destroy_process_group does, and
// drops its reference in the same round or in a later one.
struct Parting {
  int64_t leaves = 0;
  int64_t drops = 0;
};

struct Living {
  Ints members = {};
  std::shared_ptr<shm::SharedGroup> group =
      nullptr;                         // of this rank, if it is a member and has not dropped it
  std::vector<Parting> partings = {};  // by place among the members; empty: it is in use
};

// All ranks throw the same dice, so they agree on what comes next without a word.
class Churn {
 public:
  Churn(int64_t rank, const ExchangeAmong& among, uint64_t seed)
      : rank_(rank), among_(among), dice_(seed), arena_(shm::Arena::create(int64_t{1} << 30)) {}

  void run(int64_t rounds) {
    for (round_ = 0; round_ < rounds; ++round_) {
      if (living_.empty() || (dice_.one_in(3) && static_cast<int64_t>(living_.size()) < kMostGroups)) make();
      Living& any =
          living_[static_cast<size_t>(dice_.between(int64_t{0}, static_cast<int64_t>(living_.size()) - 1))];
      if (any.partings.empty()) {
        use(any);
        if (dice_.one_in(3)) end(any);
      }
      part();
    }
  }

 private:
  void make() {
    static const std::vector<Ints> members = {{0, 1}, {0, 2}, {0, 1, 2}, {1, 2}, {2, 0}};
    Living made{.members = dice_.any_of(members)};
    const shm::Tuning tuning{.inline_bytes = dice_.one_in(2) ? 8 << 10 : shm::kInlineBytes,
                             .swaps = dice_.one_in(2),
                             .hands_back = !dice_.one_in(4)};
    if (const auto place = place_in(made.members)) {
      const shm::JoinedGroup joined =
          shm::SharedGroup::join({.rank = *place,
                                  .size = static_cast<int64_t>(made.members.size()),
                                  .exchange = among_(made.members),
                                  .arena = arena_,
                                  .timeout = std::chrono::seconds(30),
                                  .tuning = tuning});
      if (!joined.group) throw std::runtime_error("no group: " + joined.why_not);
      made.group = joined.group;
    }
    living_.push_back(std::move(made));
  }

  void use(const Living& used) {
    for (int64_t calls = dice_.between(int64_t{1}, int64_t{3}); calls > 0; --calls) {
      Call call{.number = ++calls_};
      for (size_t rank = 0; rank < used.members.size(); ++rank) {
        call.sizes.push_back(any_count(dice_));
        call.is_shared.push_back(dice_.one_in(2));
      }
      const auto kind = static_cast<size_t>(dice_.between(int64_t{0}, int64_t{kCalls.size()} - 1));
      if (used.group) kCalls[kind](*used.group, call);
    }
  }

  // One member may part from it at once, another when several other groups have come.
  void end(Living& ending) {
    static const Ints delays = {0, 0, 1, 2, 4, 8};
    for (size_t i = 0; i < ending.members.size(); ++i) {
      const int64_t leaves = round_ + dice_.any_of(delays);
      ending.partings.push_back({.leaves = leaves, .drops = leaves + dice_.any_of(delays)});
    }
  }

  void part() {
    for (Living& one : living_) {
      const auto place = place_in(one.members);
      if (!one.group || one.partings.empty()) continue;
      const Parting& parting = one.partings[static_cast<size_t>(*place)];
      if (parting.leaves == round_) one.group->leave();
      if (parting.drops == round_) one.group.reset();
    }
    std::erase_if(living_, [this](const Living& one) {
      return !one.partings.empty() && std::ranges::max(one.partings, {}, &Parting::drops).drops <= round_;
    });
  }

  std::optional<int64_t> place_in(const Ints& members) const {
    const auto place = std::find(members.begin(), members.end(), rank_);
    if (place == members.end()) return std::nullopt;
    return place - members.begin();
  }

  int64_t rank_;
  const ExchangeAmong& among_;
  Dice dice_;
  std::shared_ptr<shm::Arena> arena_;
  std::vector<Living> living_;
  int64_t round_ = 0;
  int64_t calls_ = 0;
};

TEST(Churn, GroupsOfProcessesComeAndGoInAnyOrder) {
  const uint64_t seed = Dice().seed();
  const auto body = [&](int64_t rank, const ExchangeAmong& among) {
    Churn(rank, among, seed).run(rounds_of(3000));
  };
  EXPECT_EQ(run_processes_apart(kRanks, body), Endings(kRanks));
}

TEST(Churn, GroupsOfThreadsComeAndGoInAnyOrder) {
  const uint64_t seed = Dice().seed();
  const auto body = [&](int64_t rank, const ExchangeAmong& among) {
    Churn(rank, among, seed).run(rounds_of(1000));
  };
  EXPECT_NO_THROW(run_threads_apart(kRanks, body));
}

}  // namespace
}  // namespace shardway::testing
