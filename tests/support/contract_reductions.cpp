// Where boxes meet they are combined in rank order, to the bit.
#include "contract.h"
#include "require.h"

namespace shardway::testing {
namespace {

void reduce_scatter_adds_in_rank_order(const Group& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble, at::kInt,
                                     at::kLong, at::kByte, at::kChar, at::kShort}) {
    for (int64_t dim = 0; dim < 2; ++dim) {
      require_reduce_scatter(group, {.shape = {5, 7}, .dim = dim, .sizes = ragged_sizes(group.size())},
                             Op::sum, {.dtype = dtype});
    }
  }
}

void reduce_scatter_takes_empty_ranks(const Group& group) {
  require_reduce_scatter(group, {.shape = {0, 4}, .dim = 0, .sizes = sizes_with_empty_ranks(group.size())},
                         Op::sum);
  require_reduce_scatter(group, {.shape = {4, 0}, .dim = 1, .sizes = sizes_with_empty_ranks(group.size())},
                         Op::max);
  const std::vector<int64_t> none(static_cast<size_t>(group.size()), 0);
  require_reduce_scatter(group, {.shape = {0, 4}, .dim = 0, .sizes = none}, Op::sum);
}

void min_max_and_product_combine_elementwise(const Group& group) {
  for (const Op op : {Op::min, Op::max, Op::product}) {
    for (const at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong}) {
      require_reduce_scatter(group, {.shape = {0, 4}, .dim = 0, .sizes = ragged_sizes(group.size())}, op,
                             {.dtype = dtype});
    }
  }
}

void avg_divides_by_the_ranks(const Group& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    require_reduce_scatter(group, {.shape = {0, 4}, .dim = 0, .sizes = ragged_sizes(group.size())}, Op::avg,
                           {.dtype = dtype});
  }
}

void halves_accumulate_in_f32_and_round_once(const Group& group) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    require_reduce_scatter(group, {.shape = {0, 9}, .dim = 0, .sizes = ragged_sizes(group.size())}, Op::sum,
                           {.dtype = dtype});
  }
  // 256 + 1 + 1 + 1 in bf16: 259 rounds to 260, adding one by one stays at 256. 60000 + 60000 is past f16,
  // their mean is not.
  const std::vector<int64_t> one_each(static_cast<size_t>(group.size()), 1);
  const Split split{.shape = {0}, .dim = 0, .sizes = one_each};
  const at::Tensor bf16 = at::full({group.size()}, group.rank() == 0 ? 256.0F : 1.0F).to(at::kBFloat16);
  at::Tensor out = at::empty({1}, at::kBFloat16);
  execute(reduce_scatter_route(split, group.rank()), bf16, out, group);
  require_same(out, at::full({1}, 255.0F + static_cast<float>(group.size())).to(at::kBFloat16), "bf16 sum",
               group);
  out = at::empty({1}, at::kHalf);
  execute(reduce_scatter_route(split, group.rank(), Op::avg),
          at::full({group.size()}, 60000.0F).to(at::kHalf), out, group);
  require_same(out, at::full({1}, 60000.0F).to(at::kHalf), "f16 mean", group);
}

// Every rank adds rows [r, r+3) of what each rank has to its own rows: no two land on the same box.
void landings_that_overlap_in_part_are_added_in_rank_order(const Group& group) {
  Exchange exchange = alike(group, {3, 4}, {group.size() + 3, 5});
  for (int64_t to = 0; to < group.size(); ++to) {
    for (int64_t from = 0; from < group.size(); ++from) {
      exchange.transfers.push_back({.from = from,
                                    .source = Box::whole({3, 4}),
                                    .to = to,
                                    .target = {{from, (from + to) % 2}, {3, 4}}});
    }
  }
  for (const Op op : {Op::sum, Op::max}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      for (const Memory output : {Memory::contiguous, Memory::transposed}) {
        exchange.op = op;
        require_exchange(group, exchange, {.dtype = dtype, .output = output});
      }
    }
  }
}

void a_divisor_divides_single_addends_too(const Group& group) {
  Exchange exchange = reversed_rows(group, 3);
  exchange.divisor = 3;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf})
    require_exchange(group, exchange, {.dtype = dtype});
}

// Two moves of one pair land on the same rows, which a third only touches.
void several_moves_of_one_rank_are_added_in_their_order(const Group& group) {
  Exchange exchange = alike(group, {6, 2}, {5, 2});
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    const int64_t next = (rank + 1) % group.size();
    for (const int64_t begin : {0, 2, 4}) {
      const int64_t row = begin == 4 ? 1 : 0;
      exchange.transfers.push_back(
          {.from = rank, .source = {{begin, 0}, {2, 2}}, .to = next, .target = {{row, 0}, {2, 2}}});
    }
  }
  require_exchange(group, exchange);
}

void the_bits_are_the_same_in_every_call(const Group& group) {
  const Split split{.shape = {0, 33}, .dim = 0, .sizes = ragged_sizes(group.size())};
  const Route route = reduce_scatter_route(split, group.rank());
  const at::Tensor x = random_numbers(route.input_shape, at::kFloat, static_cast<uint64_t>(group.rank()));
  const at::Tensor first = at::empty(route.output_shape);
  execute(route, x, first, group);
  for (int i = 0; i < 10; ++i) {
    const at::Tensor again = at::empty(route.output_shape);
    execute(route, x, again, group);
    require_same(again, first, "a later call", group);
  }
}

void large_reductions_keep_rank_order(const Group& group) {
  constexpr int64_t k8MiB = 8 << 20;
  const std::vector<int64_t> sizes = chunk_sizes(k8MiB / 4 + 1, group.size());
  require_reduce_scatter(group, {.shape = {0}, .dim = 0, .sizes = sizes}, Op::sum);
  require_reduce_scatter(group, {.shape = {0}, .dim = 0, .sizes = sizes}, Op::avg, {.dtype = at::kBFloat16});
}

}  // namespace

std::vector<Check> checks_of_reductions() {
  return {
      {"ReduceScatterAddsInRankOrder", reduce_scatter_adds_in_rank_order},
      {"ReduceScatterTakesEmptyRanks", reduce_scatter_takes_empty_ranks},
      {"MinMaxAndProductCombineElementwise", min_max_and_product_combine_elementwise},
      {"AvgDividesByTheRanks", avg_divides_by_the_ranks},
      {"HalvesAccumulateInF32AndRoundOnce", halves_accumulate_in_f32_and_round_once},
      {"LandingsThatOverlapInPartAreAddedInRankOrder", landings_that_overlap_in_part_are_added_in_rank_order},
      {"ADivisorDividesSingleAddendsToo", a_divisor_divides_single_addends_too},
      {"SeveralMovesOfOneRankAreAddedInTheirOrder", several_moves_of_one_rank_are_added_in_their_order},
      {"TheBitsAreTheSameInEveryCall", the_bits_are_the_same_in_every_call},
      {"LargeReductionsKeepRankOrder", large_reductions_keep_rank_order},
  };
}

}  // namespace shardway::testing
