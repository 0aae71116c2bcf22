// Blocks of three ranks, of which one says something else: the sentence that all of them throw.
#include "terms/comparison.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "terms_kinds.h"

namespace shardway::testing {
namespace {

using wire::BlockHeader;
using wire::BlockRows;

constexpr int64_t kCallers = 3;
constexpr int64_t kRowBytes = 1024;

// What one rank says.
struct Said {
  BlockHeader header = {};
  std::vector<int64_t> shape = {};
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> recv_sizes = {};
  wire::CallHash hash = {};  // zero: none
  std::string text = {};
};

using Change = std::function<void(Said& said)>;

// Every rank's block, in rows.
class Ranks {
 public:
  // All say the same but for the odd one.
  Ranks(const Said& usual, int64_t odd_rank, const Change& change) : rows_(kCallers * kRowBytes) {
    for (int64_t rank = 0; rank < kCallers; ++rank) {
      Said said = usual;
      if (rank == odd_rank) change(said);
      write(said, rank);
    }
  }

  // Each says something of its own.
  explicit Ranks(const std::function<Said(int64_t rank)>& say) : rows_(kCallers * kRowBytes) {
    for (int64_t rank = 0; rank < kCallers; ++rank) write(say(rank), rank);
  }

  BlockRows rows() { return {rows_.data(), kRowBytes, kCallers}; }
  std::string disagreement(int64_t index = 0) { return wire::disagreement(rows(), kTestKinds, index); }

 private:
  void write(Said said, int64_t rank) {
    const wire::Draft draft{
        .header = said.header,
        .shape = said.shape,
        .hash = said.hash == wire::CallHash{} ? nullptr : &said.hash,
        .sizes = said.sizes,
        .recv_sizes = said.recv_sizes,
        .text = said.text.empty() ? std::nullopt : std::optional<std::string_view>(said.text)};
    uint8_t* row = rows_.data() + rank * kRowBytes;
    wire::write(draft, kCallers, row);
    const wire::Slot slot =
        said.header.has_problem || said.text.empty() ? wire::Slot::tensor : wire::Slot::words;
    const char* why = wire::why_no_block(row, kRowBytes, kCallers, slot, kTestKinds);
    EXPECT_EQ(why, nullptr) << why;
  }

  std::vector<uint8_t> rows_;
};

Said a_call(Collective collective, std::vector<int64_t> shape = {2, 3}) {
  return {.header = {.collective = static_cast<uint8_t>(collective), .dtype = 6}, .shape = std::move(shape)};
}

// A call of torch.distributed's with so many elements for and from each rank.
Said of_torch(Collective collective, int64_t elements = 4) {
  Said said = a_call(collective, {});
  said.header.in_size = said.header.out_size = elements;
  return said;
}

std::string heard(const Said& usual, int64_t odd_rank, const Change& change) {
  return Ranks(usual, odd_rank, change).disagreement();
}

TEST(Comparison, WhoSaysTheSameAgrees) {
  const Change none = [](Said&) {};
  for (const Collective collective :
       {Collective::all_gather_v, Collective::all_reduce, Collective::gather_sizes, Collective::redistribute,
        Collective::distribute, Collective::mesh_scatter})
    EXPECT_EQ(heard(a_call(collective), -1, none), "");
  for (const Collective collective :
       {Collective::dist_all_reduce, Collective::dist_all_gather, Collective::dist_reduce_scatter,
        Collective::dist_all_to_all, Collective::dist_sparse_all_reduce})
    EXPECT_EQ(heard(of_torch(collective), -1, none), "");
}

TEST(Comparison, AlongTheDimRanksMayDiffer) {
  const Change longer = [](Said& s) { s.shape[0] = 7; };
  EXPECT_EQ(heard(a_call(Collective::all_gather_v), 1, longer), "");
  EXPECT_EQ(heard(a_call(Collective::all_reduce), 1, longer),
            "all_reduce: ranks disagree on shape: (2, 3) on rank 0, (7, 3) on rank 1");
}

TEST(Comparison, EveryPointIsNamedWithBothSides) {
  const auto says = [](const Change& change) { return heard(a_call(Collective::all_gather_v), 2, change); };
  const std::string begin = "all_gather_v: ranks disagree on ";
  EXPECT_EQ(says([](Said& s) { s.header.dtype = 5; }), begin + "dtype: type6 on rank 0, type5 on rank 2");
  EXPECT_EQ(says([](Said& s) { s.header.device = 1; }),
            begin + "device: device0 on rank 0, device1 on rank 2");
  EXPECT_EQ(says([](Said& s) { s.shape = {2, 3, 1}; }), begin + "number of dims: 2 on rank 0, 3 on rank 2");
  EXPECT_EQ(says([](Said& s) { s.header.dim = 1; }), begin + "dim: 0 on rank 0, 1 on rank 2");
  EXPECT_EQ(says([](Said& s) { s.shape[1] = 4; }), begin + "shape: (*, 3) on rank 0, (*, 4) on rank 2");
  EXPECT_EQ(says([](Said& s) { s.header.op = 3; }), begin + "op: sum on rank 0, max on rank 2");
  EXPECT_EQ(says([](Said& s) { s.header.grad = 2; }), begin + "grad: sum on rank 0, local on rank 2");
  EXPECT_EQ(heard(of_torch(Collective::dist_all_reduce), 1, [](Said& s) { s.header.factor = 2.5; }),
            "all_reduce: ranks disagree on the factor: 1 on rank 0, 2.5 on rank 1");
}

TEST(Comparison, FactorsThatDifferInTheLastBitDiffer) {
  Said usual = of_torch(Collective::dist_all_reduce);
  usual.header.factor = 0.1;
  EXPECT_EQ(heard(usual, 2, [](Said& s) { s.header.factor = double{0.1F}; }),
            "all_reduce: ranks disagree on the factor: 0.1 on rank 0, 0.10000000149011612 on "
            "rank 2");
}

TEST(Comparison, OfAListTheTensorIsNamed) {
  Said usual = a_call(Collective::reduce_scatter_v);
  usual.header.list_length = 4;
  usual.sizes = {1, 1, 0};
  Ranks ranks(usual, 1, [](Said& s) { s.shape[1] = 9; });
  EXPECT_EQ(ranks.disagreement(3),
            "reduce_scatter_v: ranks disagree on shape of x[3]: (2, 3) on rank 0, (2, 9) on rank 1");
  EXPECT_EQ(heard(usual, 2, [](Said& s) { s.header.list_length = 5; }),
            "reduce_scatter_v: ranks disagree on the number of tensors: 4 on rank 0, 5 on rank 2");
}

TEST(Comparison, DifferentCallsAreNamed) {
  const std::string begin = "ranks called different collectives: ";
  const Said usual = a_call(Collective::all_gather_v);
  EXPECT_EQ(heard(usual, 1, [](Said& s) { s.header.collective = uint8_t(Collective::gather_sizes); }),
            begin + "all_gather_v on rank 0, gather_sizes on rank 1");
  EXPECT_EQ(heard(usual, 1, [](Said& s) { s.header.list_length = 2; }),
            begin + "all_gather_v on rank 0, all_gather_v of a list on rank 1");
  EXPECT_EQ(heard(usual, 2,
                  [](Said& s) {
                    s.header.backward_of = uint8_t(Collective::all_gather_v) + 1;
                    s.header.forward_number = 17;
                  }),
            begin + "all_gather_v on rank 0, backward of all_gather_v (call 17) on rank 2");
}

// Ranks of plain memory say what their calls are about by a hash, and in words.
TEST(Comparison, CallsThatOnlyTheirHashesTellApartAreNamedInTheirWords) {
  const Said usual{.header = {.has_tensor = 0}, .hash = {7, 0}, .text = "a gather"};
  Ranks alike(usual, 1, [](Said& s) { s.text = "the same in other words"; });
  EXPECT_EQ(wire::disagreement_on_calls(alike.rows()), "");
  Ranks apart(usual, 2, [](Said& s) { s.hash = {8, 0}, s.text = "a barrier"; });
  EXPECT_EQ(wire::disagreement_on_calls(apart.rows()),
            "ranks called different collectives: a gather on rank 0, a barrier on rank 2");
}

TEST(Comparison, OfGradientsNothingElseIsCompared) {
  Said usual{.header = {.backward_of = 1, .has_tensor = 0, .forward_number = 17}};
  EXPECT_EQ(heard(usual, -1, [](Said&) {}), "");
  EXPECT_EQ(heard(usual, 2, [](Said& s) { s.header.forward_number = 18; }),
            "ranks called different collectives: backward of all_gather_v (call 17) on rank 0, backward of "
            "all_gather_v (call 18) on rank 2");
}

TEST(Comparison, AProblemIsToldAfterTheRoots) {
  Said usual = a_call(Collective::broadcast);
  usual.header.root = 0;
  const auto with_problem = [](Said& s) {
    s = {.header = {.collective = s.header.collective, .has_problem = 1}, .text = "x is None"};
  };
  EXPECT_EQ(heard(usual, 1, with_problem), "broadcast: x is None (rank 1)");
  Ranks ranks([&](int64_t rank) {
    Said said = usual;
    if (rank == 1) with_problem(said);
    if (rank == 2) said.header.root = 2;
    return said;
  });
  EXPECT_EQ(ranks.disagreement(), "broadcast: ranks disagree on src: 0 on rank 0, 2 on rank 2");
}

TEST(Comparison, RootsHaveTheNamesOfTheirCalls) {
  const auto says = [](Said usual) {
    usual.header.root = 0;
    return heard(usual, 1, [](Said& s) { s.header.root = 1; });
  };
  EXPECT_EQ(says(a_call(Collective::gather_v)), "gather_v: ranks disagree on dst: 0 on rank 0, 1 on rank 1");
  EXPECT_EQ(says(a_call(Collective::broadcast)),
            "broadcast: ranks disagree on src: 0 on rank 0, 1 on rank 1");
  EXPECT_EQ(says(of_torch(Collective::dist_reduce)),
            "reduce: ranks disagree on the root: 0 on rank 0, 1 on rank 1");
}

TEST(Comparison, SizesThatRanksWereGivenAreThoseThatAreBrought) {
  Said usual = a_call(Collective::all_gather_v);
  usual.sizes = {2, 2, 2};
  EXPECT_EQ(heard(usual, -1, [](Said&) {}), "");
  EXPECT_EQ(heard(usual, 1,
                  [](Said& s) {
                    s.sizes = {2, 2, 3};
                  }),
            "all_gather_v: ranks disagree on sizes: (2, 2, 2) on rank 0, (2, 2, 3) on rank 1");
  EXPECT_EQ(heard(usual, 1, [](Said& s) { s.shape[0] = 5; }),
            "all_gather_v: ranks disagree on sizes: rank 0 expects 2 of rank 1, which has 5");
  // Where some ranks were not given any.
  EXPECT_EQ(heard(usual, 0, [](Said& s) { s.sizes = {}; }), "");
  EXPECT_EQ(heard(usual, 0, [](Said& s) { s.sizes = {}, s.shape[0] = 9; }),
            "all_gather_v: ranks disagree on sizes: rank 1 expects 2 of rank 0, which has 9");
}

TEST(Comparison, WhatIsSentIsWhatIsExpected) {
  const auto say = [](int64_t rank) {
    Said said = a_call(Collective::all_to_all_v, {rank, 3});
    said.sizes = {0, 0, rank};
    said.recv_sizes = rank == 2 ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0, 0, 0};
    return said;
  };
  EXPECT_EQ(Ranks(say).disagreement(), "");
  Ranks wrong([&](int64_t rank) {
    Said said = say(rank);
    if (rank == 2) said.recv_sizes[1] = 5;
    return said;
  });
  EXPECT_EQ(wrong.disagreement(),
            "all_to_all_v: ranks disagree on recv_sizes: rank 1 sends 1 to rank 2, which expects 5");
}

TEST(Comparison, OfTorchsCallsCountsFit) {
  EXPECT_EQ(heard(of_torch(Collective::dist_all_reduce), 1, [](Said& s) { s.header.in_size = 9; }),
            "all_reduce: ranks disagree on the number of elements: 4 on rank 0, 9 on rank 1");
  EXPECT_EQ(heard(of_torch(Collective::dist_all_gather), 1, [](Said& s) { s.header.in_size = 9; }),
            "all_gather: rank 1 sends 9 elements to rank 0, which expects 4");
  const Change lists = [](Said& s) { s.recv_sizes = {4, 4, 5}; };
  EXPECT_EQ(heard(of_torch(Collective::dist_all_gather), 1, lists),
            "all_gather: rank 2 sends 4 elements to rank 1, which expects 5");
  EXPECT_EQ(heard(of_torch(Collective::dist_sparse_all_reduce), 1, [](Said& s) { s.header.in_size = 9; }),
            "");
}

TEST(Comparison, OfARootedCallOnlyTheRootsCountsCount) {
  Said gather = of_torch(Collective::dist_gather);
  gather.header.root = 2;
  EXPECT_EQ(heard(gather, 1, [](Said& s) { s.header.out_size = 77; }), "");
  EXPECT_EQ(heard(gather, 2,
                  [](Said& s) {
                    s.recv_sizes = {4, 5, 4};
                  }),
            "gather: rank 1 sends 4 elements to rank 2, which expects 5");
  Said scatter = of_torch(Collective::dist_scatter);
  scatter.header.root = 0;
  EXPECT_EQ(heard(scatter, 1, [](Said& s) { s.header.in_size = 77; }), "");
  EXPECT_EQ(heard(scatter, 1, [](Said& s) { s.header.out_size = 77; }),
            "scatter: rank 0 sends 4 elements to rank 1, which expects 77");
}

TEST(Comparison, OfScatterTheDimIsTheRoots) {
  const auto say = [](int64_t other_dim) {
    return Ranks([=](int64_t rank) {
             Said said = a_call(Collective::scatter_v, {3, 4});
             said.sizes = {1, 2, 1};
             said.header.dim = 1;
             if (rank != 1)
               said = {.header = {.collective = uint8_t(Collective::scatter_v),
                                  .has_tensor = 0,
                                  .dim = static_cast<int32_t>(other_dim)}};
             said.header.root = 1;
             return said;
           })
        .disagreement();
  };
  EXPECT_EQ(say(1), "");
  EXPECT_EQ(say(-1), "");
  EXPECT_EQ(say(-2), "scatter_v: ranks disagree on dim: 1 on rank 1, -2 on rank 0");
}

TEST(Comparison, OnAMeshRanksOfARowAreComparedByTwos) {
  Ranks ranks(a_call(Collective::mesh_broadcast), 2, [](Said& s) { s.shape[0] = 5, s.header.dtype = 1; });
  EXPECT_EQ(ranks.disagreement(), "");  // of all ranks, only the device
  EXPECT_EQ(wire::disagreement_on(wire::Point::dtype, ranks.rows(), kTestKinds, 0, 1), "");
  EXPECT_EQ(wire::disagreement_on(wire::Point::dtype, ranks.rows(), kTestKinds, 1, 2),
            "mesh_broadcast: ranks disagree on dtype: type6 on rank 1, type1 on rank 2");
  EXPECT_EQ(wire::disagreement_on(wire::Point::shape, ranks.rows(), kTestKinds, 1, 2),
            "mesh_broadcast: ranks disagree on shape: (2, 3) on rank 1, (5, 3) on rank 2");
  EXPECT_EQ(heard(a_call(Collective::redistribute), 1, [](Said& s) { s.header.device = 1; }),
            "redistribute: ranks disagree on device: device0 on rank 0, device1 on rank 1");
}

TEST(Comparison, WordsAreComparedLineByLine) {
  Said usual = a_call(Collective::redistribute);
  usual.hash = {1, 2};
  Ranks same(usual, -1, [](Said&) {});
  EXPECT_TRUE(wire::have_same_hash(same.rows()));
  Ranks other(usual, 1, [](Said& s) { s.hash = {1, 3}; });
  EXPECT_FALSE(wire::have_same_hash(other.rows()));
  Ranks without(usual, 2, [](Said& s) { s.hash = {}; });
  EXPECT_FALSE(wire::have_same_hash(without.rows()));
  Said words = a_call(Collective::redistribute);
  words.text = "the tensor: S0\nthe target: R";
  Ranks told(words, 2, [](Said& s) { s.text = "the tensor: S0\nthe target: S1"; });
  EXPECT_EQ(wire::disagreement_in_words(told.rows()),
            "redistribute: ranks disagree on the target: R on rank 0, S1 on rank 2");
  Ranks cut(words, 2, [](Said& s) { s.text = "the tensor: S0"; });
  EXPECT_EQ(wire::disagreement_in_words(cut.rows()),
            "redistribute: ranks disagree on a layout that is too long to be told here");
}

}  // namespace
}  // namespace shardway::testing
