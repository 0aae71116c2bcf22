// What the planner charges for the calls of a calibration.
#pragma once

#include "plan/calibration/calibration.h"
#include "plan/price/table_prices.h"

namespace shardway {

// What the ranks of a trial read.
ReadLoad load_of(const Trial& trial, int64_t ranks);

// What a trial costs between ranks of one host by a table. An exchange is measured as a redistribution, the
// others as collectives: their prices have no `step_us`.
double us_by_table(const Trial& trial, const PriceTable& table);

// The same by the figures alone.
double us_by_figures(const Trial& trial, int64_t ranks, const Topology& topology);

// By the table of the topology, if it has any.
double modelled_us(const Trial& trial, int64_t ranks, const Topology& topology);

Trial trial_of(const MeasuredCall& call);

// The median relative error of the prices of calls that are held out; of all calls if none is.
double held_out_error(const std::vector<MeasuredCall>& calls, int64_t ranks, const Topology& topology);

}  // namespace shardway
