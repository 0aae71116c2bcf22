// What ranks may have to say alike of a call, point by point: its names, and how a block says it.
#pragma once

#include <string>

#include "terms/comparison.h"

namespace shardway::wire {

const char* name_of_point(Point point, Collective collective);

// Whether the point belongs to the whole call and not to one tensor of a list.
bool is_of_call(Point point);

std::string text_of(Point point, const BlockView& block, const Kinds& kinds);

// Compares as numbers what the points compare as text: equal numbers mean equal texts, and the texts need not
// be made.
bool same_points(const BlockView& a, const BlockView& b);

}  // namespace shardway::wire
