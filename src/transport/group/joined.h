// The worlds that this program has joined.
#pragma once

#include <memory>
#include <vector>

#include "transport/common/transport.h"

namespace shardway {

void remember_joined(const std::shared_ptr<Transport>& world);

// Returns the worlds that somebody still holds. Reads only one number if none was ever joined.
std::vector<std::shared_ptr<Transport>> joined_worlds();

}  // namespace shardway
