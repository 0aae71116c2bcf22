// Collectives over shared memory: every path, every mixture of them, threads and processes.
#include "shm/group/group.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <functional>
#include <random>
#include <span>

#include "rank_runner.h"
#include "scenario.h"
#include "shm/calls/all_reduce.h"
#include "shm/memory/errors.h"

namespace shardway::testing {
namespace {

std::vector<int64_t> ragged(int64_t ranks, int64_t unit) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < ranks; ++rank) sizes.push_back((2 * rank + 1) * unit);
  return sizes;
}

// Inputs of ranks that differ in where they lie.
std::vector<Where> mixed(int64_t ranks, int64_t shift) {
  std::vector<Where> where;
  for (int64_t rank = 0; rank < ranks; ++rank)
    where.push_back((rank + shift) % 2 == 0 ? Where::arena : Where::anywhere);
  return where;
}

class ShmGroup : public ::testing::TestWithParam<int64_t> {
 protected:
  // As threads, then as processes.
  static void run(const std::function<Scenario()>& make, int times = 3) {
    const Scenario scenario = make();
    const auto body = [&](shm::SharedGroup& group) { run_scenario(group, scenario, times); };
    EXPECT_NO_THROW(run_threads(GetParam(), body));
    EXPECT_EQ(run_processes(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
  }
  static void run_everywhere(Scenario scenario, int times = 3) {
    for (int64_t shift = -1; shift < 3; ++shift) {
      scenario.where.assign(static_cast<size_t>(GetParam()), shift < 0 ? Where::anywhere : Where::arena);
      if (shift > 0) scenario.where = mixed(GetParam(), shift);
      run([&] { return scenario; }, times);
    }
  }
};

TEST_P(ShmGroup, SmallInputsTravelBesideTheHeader) {
  run_everywhere(gather({0, 3}, 0, ragged(GetParam(), 1)), 50);
  run_everywhere(gather({4, 0, 2}, 1, ragged(GetParam(), 1)));
  run_everywhere(reduce_scatter({0, 3}, 0, ragged(GetParam(), 1)), 50);
}

TEST_P(ShmGroup, LargeInputsArePulledOrStaged) {
  run_everywhere(gather({0}, 0, ragged(GetParam(), 20'000)), 2);
  run_everywhere(gather({60, 0}, 1, ragged(GetParam(), 300)), 2);
  run_everywhere(reduce_scatter({0}, 0, ragged(GetParam(), 20'000)), 2);
  run_everywhere(reduce_scatter({60, 0}, 1, ragged(GetParam(), 300)), 2);
}

TEST_P(ShmGroup, RingsAreFilledManyTimes) {
  run([] { return gather({0}, 0, ragged(GetParam(), 200'000)); }, 2);
  run([] { return reduce_scatter({0}, 0, ragged(GetParam(), 200'000)); }, 2);
}

TEST_P(ShmGroup, SmallAndLargeInputsMeet) {
  std::vector<int64_t> sizes(static_cast<size_t>(GetParam()), 5);
  sizes.back() = 70'000;
  run_everywhere(gather({0}, 0, sizes));
  sizes.front() = 0;
  run_everywhere(gather({0}, 0, sizes));
  run_everywhere(reduce_scatter({0}, 0, sizes));
}

TEST_P(ShmGroup, AHeavyReductionIsSharedByAll) {
  std::vector<int64_t> one_hot(static_cast<size_t>(GetParam()), 0);
  one_hot[one_hot.size() / 2] = 70'001;
  run_everywhere(reduce_scatter({0}, 0, one_hot), 2);
  run_everywhere(reduce_scatter({2, 0}, 1, one_hot), 1);
  one_hot.front() += 3;
  run_everywhere(reduce_scatter({0}, 0, one_hot), 2);
}

TEST_P(ShmGroup, AHeavyReductionIsSharedByRanksWhoseArenasAreFull) {
  std::vector<int64_t> sizes(static_cast<size_t>(GetParam()), 0);
  sizes.back() = 300'001;
  const Scenario scenario = reduce_scatter({0}, 0, sizes);
  const auto body = [&](shm::SharedGroup& group) {
    int64_t bytes = int64_t{1} << 30;  // the ranks' own arenas hold less
    while (bytes >= 64) {
      try {
        group.arena()->allocate(bytes);
      } catch (const shm::ArenaFull&) {
        bytes /= 2;
      }
    }
    const uint64_t before = group.calls();
    run_scenario(group, scenario, 1);
    EXPECT_EQ(group.calls(), before + 1);
  };
  EXPECT_NO_THROW(run_threads(GetParam(), body, {.arena_bytes = 16 << 20}));
}

TEST_P(ShmGroup, BlocksGoToTheirRanks) {
  for (const bool offsets_known : {true, false}) {
    Scenario small = all_to_all(GetParam(), 2, 3);
    small.offsets_known = offsets_known;
    run_everywhere(small);
    Scenario large = all_to_all(GetParam(), 40, 501);
    large.offsets_known = offsets_known;
    run_everywhere(large, 2);
  }
}

TEST_P(ShmGroup, InputsMayLieTransposed) {
  Scenario scenario = gather({60, 0}, 1, ragged(GetParam(), 100));
  scenario.is_transposed = true;
  run_everywhere(scenario, 2);
  scenario = reduce_scatter({60, 0}, 1, ragged(GetParam(), 100));
  scenario.is_transposed = true;
  run_everywhere(scenario, 2);
}

// Rows of every rank reversed at the next, some of them twice: many moves of a pair, several landings.
TEST_P(ShmGroup, ManyMovesOfOnePairKeepTheirOrder) {
  for (const int64_t rows : {3, 700}) {
    Scenario scenario{.adds = true};
    scenario.inputs.assign(static_cast<size_t>(GetParam()), {rows, 40});
    scenario.outputs.assign(static_cast<size_t>(GetParam()), {rows, 40});
    for (int64_t rank = 0; rank < GetParam(); ++rank) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t next = (rank + 1) % GetParam();
        scenario.moves.push_back({rank, {row, 0}, next, {rows - 1 - row, 0}, {1, 40}});
        if (row % 2 == 0) scenario.moves.push_back({rank, {0, 0}, next, {rows - 1 - row, 0}, {1, 40}});
      }
    }
    run_everywhere(scenario, 2);
  }
}

// Ranks in pairs: every rank adds what the ranks of each pair send it, one block of its output for each pair.
Scenario sums_of_pairs(int64_t ranks, int64_t rows, int64_t columns) {
  Scenario scenario{.adds = true};
  scenario.inputs.assign(static_cast<size_t>(ranks), {rows, columns * ranks});
  scenario.outputs.assign(static_cast<size_t>(ranks), {(ranks + 1) / 2 * rows, columns});
  for (int64_t from = 0; from < ranks; ++from) {
    for (int64_t to = 0; to < ranks; ++to)
      scenario.moves.push_back({from, {0, to * columns}, to, {from / 2 * rows, 0}, {rows, columns}});
  }
  return scenario;
}

TEST_P(ShmGroup, SeveralSumsGrowSideBySide) {
  for (const int64_t columns : {3, 900}) run_everywhere(sums_of_pairs(GetParam(), 70, columns), 2);
}

TEST_P(ShmGroup, SumsOfAListFollowEachOther) {
  const std::vector<Scenario> list{sums_of_pairs(GetParam(), 70, 900),
                                   gather({0}, 0, ragged(GetParam(), 9'000)),
                                   sums_of_pairs(GetParam(), 200, 300)};
  const auto body = [&](shm::SharedGroup& group) { run_scenarios_at_once(group, list, 2); };
  EXPECT_NO_THROW(run_threads(GetParam(), body));
}

// Every way of moving what lies in private memory gives the same.
TEST_P(ShmGroup, EveryWayGivesTheSame) {
  for (const shm::Tuning& tuning :
       {shm::Tuning{}, shm::Tuning{.inline_bytes = 0}, shm::Tuning{.inline_bytes = 0, .hands_back = true},
        shm::Tuning{.swaps = true}, shm::Tuning{.inline_bytes = 0, .swaps = true, .hands_back = true}}) {
    for (Scenario scenario :
         {gather({0}, 0, ragged(GetParam(), 20'000)), gather({60, 0}, 1, ragged(GetParam(), 100)),
          reduce_scatter({0}, 0, ragged(GetParam(), 20'000)), all_to_all(GetParam(), 40, 501)}) {
      for (int64_t shift = 0; shift < 2; ++shift) {
        if (shift > 0) scenario.where = mixed(GetParam(), shift);
        const auto body = [&](shm::SharedGroup& group) { run_scenario(group, scenario, 2); };
        EXPECT_NO_THROW(run_threads(GetParam(), body, {.tuning = tuning}));
        EXPECT_EQ(run_processes(GetParam(), body, {.tuning = tuning}),
                  Endings(static_cast<size_t>(GetParam())));
      }
    }
  }
}

// Slots and payloads change hands from call to call, wherever the one before has left them.
TEST_P(ShmGroup, CallsOfAllKindsFollowEachOther) {
  const auto body = [](shm::SharedGroup& group) {
    std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same calls on every rank
    const auto any_of = [&](std::initializer_list<int64_t> values) {
      return std::data(values)[random() % values.size()];
    };
    for (int call = 0; call < 60; ++call) {
      std::vector<int64_t> sizes(static_cast<size_t>(group.size()));
      std::vector<Where> where(sizes.size());
      for (int64_t& size : sizes) size = any_of({0, 1, 700, 3'000, 12'000, 40'000, 90'000});
      for (Where& w : where) w = random() % 5 == 0 ? Where::arena : Where::anywhere;
      Scenario scenario = random() % 2 == 0 ? gather({0}, 0, sizes) : reduce_scatter({0}, 0, sizes);
      scenario.where = where;
      run_scenario(group, scenario);
      if (random() % 4 == 0) group.barrier();
    }
  };
  EXPECT_NO_THROW(run_threads(GetParam(), body));
  EXPECT_EQ(run_processes(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

TEST_P(ShmGroup, TheDefaultTuningWorks) {
  const Scenario scenario = gather({0}, 0, ragged(GetParam(), 70'000));
  const auto body = [&](shm::SharedGroup& group) { run_scenario(group, scenario, 2); };
  EXPECT_EQ(run_processes(GetParam(), body, {.tuning = std::nullopt}),
            Endings(static_cast<size_t>(GetParam())));
}

// As a system may have it for a while, though each rank could have a core of its own.
TEST_P(ShmGroup, RanksThatComeToShareACoreGoOn) {
  const Scenario scenario = gather({0}, 0, ragged(GetParam(), 20'000));
  const auto body = [&](shm::SharedGroup& group) {
    std::array<int, 4> cores{};
    const int core = sched_getcpu();
    group.gather_notes({.note = std::as_bytes(std::span(&core, 1)),
                        .rows = reinterpret_cast<std::byte*>(cores.data()),
                        .row_bytes = sizeof(core)});
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(cores[0]), &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) throw std::runtime_error("sched_setaffinity");
    run_scenario(group, scenario, 3);
  };
  EXPECT_EQ(run_processes(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

TEST_P(ShmGroup, NothingMovesWhereNothingIsToMove) {
  Scenario scenario;
  scenario.inputs.assign(static_cast<size_t>(GetParam()), {2, 2});
  scenario.outputs.assign(static_cast<size_t>(GetParam()), {3});
  run([&] { return scenario; });
  run([] { return gather({0, 3}, 0, std::vector<int64_t>(static_cast<size_t>(GetParam()), 0)); });
}

TEST_P(ShmGroup, NotesOfEveryLengthArrive) {
  const auto body = [](shm::SharedGroup& group) {
    for (int64_t length : {0, 1, 63, 4096, 32768}) {
      const int64_t own = std::max(length - group.rank(), int64_t{0});
      const std::vector<std::byte> mine(static_cast<size_t>(own), std::byte(group.rank() + 1));
      std::vector<std::byte> rows(static_cast<size_t>(group.size() * 40'000));
      group.gather_notes({.note = mine, .rows = rows.data(), .row_bytes = 40'000});
      for (int64_t rank = 0; rank < group.size(); ++rank) {
        const int64_t theirs = std::max(length - rank, int64_t{0});
        for (int64_t i = 0; i < 40'000; ++i) {
          const auto expected = i < theirs ? std::byte(rank + 1) : std::byte(0);
          if (rows[static_cast<size_t>(rank * 40'000 + i)] != expected)
            throw std::runtime_error("another note");
        }
      }
    }
  };
  EXPECT_NO_THROW(run_threads(GetParam(), body));
}

// Notes that all ranks say alike are not read (NotePlace). One that differs in a byte, or in zeros at its
// end, is, whichever rank says it.
TEST_P(ShmGroup, ANoteThatDiffersALittleIsHeard) {
  struct Change {
    size_t length;
    size_t at;
    int value;
  };
  const auto body = [](shm::SharedGroup& group) {
    for (const Change& change :
         {Change{77, 77, 0}, {77, 0, 1}, {77, 76, 1}, {77, 71, 128}, {64, 8, 9}, {80, 80, 0}}) {
      for (int64_t odd = 0; odd < group.size(); ++odd) {
        const auto note_of_rank = [&](int64_t rank) {
          std::vector<std::byte> note(77, std::byte(3));
          if (rank != odd) return note;
          note.resize(change.length);
          if (change.at < change.length) note[change.at] = std::byte(change.value);
          return note;
        };
        const std::vector<std::byte> mine = note_of_rank(group.rank());
        std::vector<std::byte> rows(static_cast<size_t>(group.size() * 128));
        std::vector<int64_t> lengths(static_cast<size_t>(group.size()));
        group.gather_notes({.note = mine, .rows = rows.data(), .row_bytes = 128, .lengths = lengths.data()});
        for (int64_t rank = 0; rank < group.size(); ++rank) {
          const std::vector<std::byte> expected = note_of_rank(rank);
          const std::byte* row = rows.data() + rank * 128;
          if (lengths[static_cast<size_t>(rank)] != static_cast<int64_t>(expected.size()) ||
              !std::equal(expected.begin(), expected.end(), row))
            throw std::runtime_error("another note");
        }
      }
    }
  };
  EXPECT_NO_THROW(run_threads(GetParam(), body));
}

// Of rank 1, and of the others.
struct Mixed {
  const char* name;
  std::function<void(shm::SharedGroup&)> odd;
  std::function<void(shm::SharedGroup&)> usual;
};

shm::Subject about(const char* what) {
  return {.mark = shm::mark_of(what), .words = [what] { return std::string(what); }};
}

TEST_P(ShmGroup, RanksInDifferentCallsAllSayTheSameAndGoOn) {
  if (GetParam() == 1) return;
  const auto note = [](const char* what, int64_t bytes) {
    return [=](shm::SharedGroup& group) {
      const std::vector<std::byte> mine(static_cast<size_t>(bytes));
      std::vector<std::byte> rows(static_cast<size_t>(group.size() * 4096));
      group.gather_notes({.note = mine, .rows = rows.data(), .row_bytes = 4096}, about(what));
    };
  };
  const auto sum = [](const char* what, int64_t bytes) {
    return [=](shm::SharedGroup& group) {
      std::vector<std::byte> memory(static_cast<size_t>(bytes));
      group.run(shm::AllReduce{.input = memory.data(), .output = memory.data(), .bytes = bytes, .how = {}},
                about(what));
    };
  };
  const std::vector<Mixed> cases = {
      {"notes", note("odd", 100), note("usual", 0)},
      {"a small sum", sum("odd", 64), note("usual", 10)},
      {"a large sum", sum("odd", 1 << 20), note("usual", 10)},
      {"sums", sum("odd", 64), sum("usual", 1 << 20)},
      {"a barrier", [](shm::SharedGroup& group) { group.barrier(); }, sum("usual", 64)}};
  const Scenario scenario = gather({0}, 0, ragged(GetParam(), 20'000));
  const auto body = [&](shm::SharedGroup& group) {
    for (const Mixed& mixed : cases) {
      std::string said = "nothing";
      try {
        (group.rank() == 1 ? mixed.odd : mixed.usual)(group);
      } catch (const shm::Disagreement& error) {
        said = error.what();
      }
      const std::string odd = mixed.name == std::string("a barrier") ? "a barrier" : "odd";
      if (said != "ranks called different collectives: usual on rank 0, " + odd + " on rank 1")
        throw std::runtime_error(std::string(mixed.name) + ": " + said);
      run_scenario(group, scenario);
    }
  };
  EXPECT_NO_THROW(run_threads(GetParam(), body));
  EXPECT_EQ(run_processes(GetParam(), body), Endings(static_cast<size_t>(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(, ShmGroup, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

}  // namespace
}  // namespace shardway::testing
