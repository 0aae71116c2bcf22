// JSON of any number of members in linear time.
#pragma once

#include <string>

#include "plan/text/json.h"

namespace shardway::link {

// Members of an object stay in their order. Nlohmann's own parser looks at all members of an object before it
// adds one: seconds for a model of many tensors. Of a name that comes twice, the first counts. Throws NotOurs
// if the text is no JSON.
Json parsed(const std::string& text);

}  // namespace shardway::link
