// A layout in words, for a reader who does not know S, R and P.
#pragma once

#include <string>

#include "shardway/layout.h"

namespace shardway::page {

// Example: S0,P on dp=2,tp=4 is "dim 0 split over dp, addends over tp".
std::string words_of(const Layout& layout);

}  // namespace shardway::page
