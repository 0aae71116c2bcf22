// Boxes arrive where they belong, whatever their number, size and memory.
#include <chrono>
#include <thread>

#include "contract.h"
#include "require.h"

namespace shardway::testing {
namespace {

void all_gather_concatenates_along_every_dim(const Group& group) {
  for (int64_t dim = 0; dim < 3; ++dim) {
    require_all_gather(group, {.shape = {4, 3, 5}, .dim = dim, .sizes = ragged_sizes(group.size())});
  }
}

void all_gather_of_equal_sizes_concatenates(const Group& group) {
  const std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 3);
  for (int64_t dim = 0; dim < 2; ++dim)
    require_all_gather(group, {.shape = {0, 4}, .dim = dim, .sizes = sizes});
}

void all_gather_takes_empty_ranks(const Group& group) {
  require_all_gather(group, {.shape = {0, 4}, .dim = 0, .sizes = sizes_with_empty_ranks(group.size())});
  require_all_gather(group, {.shape = {4, 0}, .dim = 1, .sizes = sizes_with_empty_ranks(group.size())});
  const std::vector<int64_t> none(static_cast<size_t>(group.size()), 0);
  require_all_gather(group, {.shape = {0, 4}, .dim = 0, .sizes = none});
  require_all_gather(group, {.shape = {2, 0}, .dim = 0, .sizes = ragged_sizes(group.size())});
}

void all_to_all_gives_block_r_to_rank_r(const Group& group) {
  const auto block = [](int64_t from, int64_t to) { return (3 * from + 2 * to) % 4; };
  for (const bool offsets_known : {true, false}) {
    AllToAllSizes sizes;
    Tensors inputs;
    Tensors arriving;
    for (int64_t peer = 0; peer < group.size(); ++peer) {
      sizes.send.push_back(block(group.rank(), peer));
      sizes.recv.push_back(block(peer, group.rank()));
      std::vector<int64_t> sent;
      std::vector<int64_t> received;
      for (int64_t r = 0; r < group.size(); ++r) {
        sent.push_back(block(peer, r));
        received.push_back(block(r, peer));
      }
      inputs.push_back(random_bits({2, total(sent)}, at::kFloat, static_cast<uint64_t>(peer)));
      arriving.push_back(inputs.back().narrow(1, begin_of(sent, group.rank()), block(peer, group.rank())));
      if (!offsets_known) continue;
      sizes.offset_in_input.push_back(begin_of(sent, group.rank()));
      sizes.offset_in_output.push_back(begin_of(received, group.rank()));
    }
    const at::Tensor expected = at::cat(arriving, 1);
    require_result(group, all_to_all_route({2, 0}, 1, sizes, group.rank()),
                   inputs[static_cast<size_t>(group.rank())],
                   random_bits(expected.sizes().vec(), at::kFloat, 7), expected, {});
  }
}

void ring_shift_gives_each_rank_its_neighbours_tensor(const Group& group) {
  Exchange exchange = alike(group, {4, 3}, {4, 3});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const int64_t next = (rank + 1) % group.size();
    exchange.transfers.push_back(
        {.from = rank, .source = Box::whole({4, 3}), .to = next, .target = Box::whole({4, 3})});
  }
  require_exchange(group, exchange);
}

// Each rank owns 4 rows with one row of each neighbour beside them.
void halo_rows_come_from_both_neighbours(const Group& group) {
  Exchange exchange = alike(group, {4, 3}, {6, 3});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    exchange.transfers.push_back(
        {.from = rank, .source = Box::whole({4, 3}), .to = rank, .target = {{1, 0}, {4, 3}}});
    if (rank > 0)
      exchange.transfers.push_back(
          {.from = rank, .source = {{0, 0}, {1, 3}}, .to = rank - 1, .target = {{5, 0}, {1, 3}}});
    if (rank + 1 < group.size()) {
      exchange.transfers.push_back(
          {.from = rank, .source = {{3, 0}, {1, 3}}, .to = rank + 1, .target = {{0, 0}, {1, 3}}});
    }
  }
  require_exchange(group, exchange);
}

// Each rank sends one block to one other, the last to the first: rank r to n-1-r, to other places in memory.
void permutation_of_blocks(const Group& group) {
  Exchange exchange = alike(group, {5, 4}, {6, 7});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    exchange.transfers.push_back({.from = rank,
                                  .source = {{2, 1}, {3, 2}},
                                  .to = group.size() - 1 - rank,
                                  .target = {{rank % 3, 4}, {3, 2}}});
  }
  require_exchange(group, exchange);
}

void several_moves_between_one_pair_keep_their_order(const Group& group) {
  require_exchange(group, reversed_rows(group, 5));
}

void hundreds_of_moves_between_one_pair_arrive(const Group& group) {
  require_exchange(group, reversed_rows(group, 300));
}

void a_route_without_moves_does_nothing(const Group& group) {
  require_exchange(group, alike(group, {3}, {4}));
}

void a_move_of_nothing_does_nothing(const Group& group) {
  Exchange exchange = alike(group, {3, 2}, {4, 2});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    exchange.transfers.push_back(
        {.from = rank, .source = {{1, 0}, {0, 2}}, .to = 0, .target = {{4, 0}, {0, 2}}});
  }
  require_exchange(group, exchange);
}

// Rank 0 sends to the last; those between neither send nor receive.
void ranks_without_moves_take_part_for_free(const Group& group) {
  Exchange exchange = alike(group, {3}, {4});
  exchange.transfers = {{.from = 0, .source = {{1}, {2}}, .to = group.size() - 1, .target = {{0}, {2}}}};
  require_exchange(group, exchange);
  require_exchange(group, reversed_rows(group, 2));
}

void one_rank_takes_from_all(const Group& group) {
  Exchange exchange = alike(group, {2, 3}, {2 * group.size(), 3});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    exchange.transfers.push_back({.from = rank,
                                  .source = Box::whole({2, 3}),
                                  .to = group.size() - 1,
                                  .target = {{2 * rank, 0}, {2, 3}}});
  }
  require_exchange(group, exchange);
}

void elements_where_nothing_lands_stay(const Group& group) {
  Exchange exchange = alike(group, {2, 2, 2}, {4, 4, 4});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const int64_t next = (rank + 1) % group.size();
    exchange.transfers.push_back(
        {.from = rank, .source = {{0, 1, 0}, {2, 1, 2}}, .to = next, .target = {{1, 2, 1}, {2, 1, 2}}});
  }
  for (const Memory output : {Memory::contiguous, Memory::transposed})
    require_exchange(group, exchange, {.output = output});
}

void every_dtype_moves_bit_for_bit(const Group& group) {
  for (const at::ScalarType dtype : {at::kBool,
                                     at::kByte,
                                     at::kChar,
                                     at::kShort,
                                     at::kInt,
                                     at::kLong,
                                     at::kUInt16,
                                     at::kUInt32,
                                     at::kUInt64,
                                     at::kHalf,
                                     at::kBFloat16,
                                     at::kFloat,
                                     at::kDouble,
                                     at::kComplexHalf,
                                     at::kComplexFloat,
                                     at::kComplexDouble,
                                     at::kFloat8_e5m2,
                                     at::kFloat8_e4m3fn,
                                     at::kFloat8_e5m2fnuz,
                                     at::kFloat8_e4m3fnuz}) {
    for (int64_t dim = 0; dim < 2; ++dim) {
      require_all_gather(group, {.shape = {3, 4}, .dim = dim, .sizes = ragged_sizes(group.size())},
                         {.dtype = dtype});
    }
  }
}

void memory_may_be_strided(const Group& group) {
  const auto forms = {Memory::contiguous, Memory::transposed, Memory::every_second,
                      Memory::inside_a_larger_tensor};
  for (const Memory input : forms) {
    for (const Memory output : forms) {
      const How how{.input = input, .output = output};
      require_all_gather(group, {.shape = {0, 3, 4}, .dim = 0, .sizes = ragged_sizes(group.size())}, how);
      require_reduce_scatter(group, {.shape = {3, 0, 4}, .dim = 1, .sizes = ragged_sizes(group.size())},
                             Op::sum, how);
      require_exchange(group, reversed_rows(group, 3), how);
    }
  }
}

void around_a_strided_output_nothing_is_written(const Group& group) {
  const at::Tensor larger = at::full({6, 8}, -1.0F);
  const at::Tensor out = larger.slice(0, 1, 5).slice(1, 0, 8, 2);
  const Exchange exchange = reversed_rows(group, 4);
  execute(route_of(exchange, group.rank()), at::zeros({4, 2}), out.narrow(1, 1, 2), group);
  at::Tensor expected = at::full({6, 8}, -1.0F);
  for (const int64_t column : {2, 4}) expected.narrow(0, 1, 4).select(1, column).zero_();
  require_same(larger, expected, "the memory around the output", group);
}

void an_expanded_input_moves(const Group& group) {
  const Split split{.shape = {0, 3}, .dim = 0, .sizes = ragged_sizes(group.size())};
  Tensors inputs;
  for (int64_t size : split.sizes)
    inputs.push_back(at::full({1}, static_cast<float>(size)).expand({size, 3}));
  const at::Tensor expected = at::cat(inputs);
  const at::Tensor out = at::empty_like(expected);
  execute(all_gather_route(split, group.rank()), inputs[static_cast<size_t>(group.rank())], out, group);
  require_same(out, expected, "the output", group);
}

void lazily_conjugated_and_negated_inputs_move_as_their_values(const Group& group) {
  const Split split{.shape = {0, 3}, .dim = 0, .sizes = ragged_sizes(group.size())};
  Tensors inputs;
  for (int64_t size : split.sizes) {
    inputs.push_back(random_numbers({size, 3}, at::kComplexFloat, static_cast<uint64_t>(size)).conj());
  }
  const auto rank = static_cast<size_t>(group.rank());
  const at::Tensor expected = at::cat(inputs).resolve_conj();
  const at::Tensor out = at::empty(expected.sizes(), at::kComplexFloat);
  execute(all_gather_route(split, group.rank()), inputs[rank], out, group);
  require_same(out, expected, "conjugated", group);
  const at::Tensor imaginary = at::empty(expected.sizes(), at::kFloat);
  execute(all_gather_route(split, group.rank()), at::imag(inputs[rank]), imaginary, group);
  require_same(imaginary, at::imag(expected).contiguous(), "negated", group);
}

void large_messages_arrive(const Group& group) {
  constexpr int64_t k8MiB = 8 << 20;
  std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 1);
  sizes.back() = k8MiB / 4 + 3;
  require_all_gather(group, {.shape = {0}, .dim = 0, .sizes = sizes});
  std::vector<int64_t> columns(static_cast<size_t>(group.size()), 1024);
  columns.front() = 2;
  require_all_gather(group, {.shape = {1024, 0}, .dim = 1, .sizes = columns}, {.dtype = at::kDouble});
}

// Nothing waits between the calls: a fast rank is ahead of a slow one, which must not mix their messages.
void many_calls_in_a_row_do_not_mix(const Group& group) {
  for (uint64_t call = 0; call < 60; ++call) {
    const How how{.seed = call + 1};
    require_all_gather(group, {.shape = {0, 3}, .dim = 0, .sizes = ragged_sizes(group.size())}, how);
    require_exchange(group, reversed_rows(group, 2), how);
    require_reduce_scatter(group, {.shape = {0, 3}, .dim = 0, .sizes = ragged_sizes(group.size())}, Op::sum,
                           how);
  }
}

void a_rank_may_come_late(const Group& group) {
  for (int64_t late = 0; late < group.size(); ++late) {
    if (group.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    require_exchange(group, reversed_rows(group, 3));
  }
}

}  // namespace

std::vector<Check> checks_of_moves() {
  return {
      {"AllGatherConcatenatesAlongEveryDim", all_gather_concatenates_along_every_dim},
      {"AllGatherOfEqualSizesConcatenates", all_gather_of_equal_sizes_concatenates},
      {"AllGatherTakesEmptyRanks", all_gather_takes_empty_ranks},
      {"AllToAllGivesBlockRToRankR", all_to_all_gives_block_r_to_rank_r},
      {"RingShiftGivesEachRankItsNeighboursTensor", ring_shift_gives_each_rank_its_neighbours_tensor},
      {"HaloRowsComeFromBothNeighbours", halo_rows_come_from_both_neighbours},
      {"PermutationOfBlocks", permutation_of_blocks},
      {"SeveralMovesBetweenOnePairKeepTheirOrder", several_moves_between_one_pair_keep_their_order},
      {"HundredsOfMovesBetweenOnePairArrive", hundreds_of_moves_between_one_pair_arrive},
      {"ARouteWithoutMovesDoesNothing", a_route_without_moves_does_nothing},
      {"AMoveOfNothingDoesNothing", a_move_of_nothing_does_nothing},
      {"RanksWithoutMovesTakePartForFree", ranks_without_moves_take_part_for_free},
      {"OneRankTakesFromAll", one_rank_takes_from_all},
      {"ElementsWhereNothingLandsStay", elements_where_nothing_lands_stay},
      {"EveryDtypeMovesBitForBit", every_dtype_moves_bit_for_bit},
      {"MemoryMayBeStrided", memory_may_be_strided},
      {"AroundAStridedOutputNothingIsWritten", around_a_strided_output_nothing_is_written},
      {"AnExpandedInputMoves", an_expanded_input_moves},
      {"LazilyConjugatedAndNegatedInputsMoveAsTheirValues",
       lazily_conjugated_and_negated_inputs_move_as_their_values},
      {"LargeMessagesArrive", large_messages_arrive},
      {"ManyCallsInARowDoNotMix", many_calls_in_a_row_do_not_mix},
      {"ARankMayComeLate", a_rank_may_come_late},
  };
}

}  // namespace shardway::testing
