// Random collectives for property tests: 1 to 5 ranks, 1-d to 4-d, sizes of zero included.
#pragma once

#include <ostream>
#include <vector>

#include "exchange.h"
#include "rank_simulator.h"
#include "shardway/route.h"

namespace shardway {

// How RapidCheck writes a route of a failed property.
void showValue(const Box& box, std::ostream& out);
void showValue(const Route& route, std::ostream& out);

}  // namespace shardway

namespace shardway::testing {

// Each gives a new random value per call inside a RapidCheck property.
int64_t any_between(int64_t least, int64_t most);
Split any_split();
Shape any_shape(int64_t dims, int64_t most);
Box any_box_within(const Shape& shape);
Dense any_dense(const Shape& shape);
std::vector<Dense> any_inputs(const std::vector<Route>& routes);
std::vector<Dense> any_outputs(const std::vector<Route>& routes);

// Block sizes of an all-to-all: [from][to].
std::vector<std::vector<int64_t>> any_block_sizes(int64_t ranks);

// Random transfers between random boxes, which may overlap in part where they land.
Exchange any_exchange();

// One route per rank of a random collective: a gather, a reduce-scatter, an all-to-all or an exchange.
std::vector<Route> any_routes();

// One route per rank of a collective.
std::vector<Route> all_gather_routes(const Split& split);
std::vector<Route> reduce_scatter_routes(const Split& split, Op op = Op::sum);
std::vector<Route> all_to_all_routes(const Shape& shape, int64_t dim,
                                     const std::vector<std::vector<int64_t>>& blocks);
std::vector<Route> routes_of(const Exchange& exchange);

}  // namespace shardway::testing
