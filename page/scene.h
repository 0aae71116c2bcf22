// What the page draws, as data for its script: coordinates are elements along the two tensor dims that are
// shown, ranks are tiles.
#pragma once

#include <nlohmann/json.hpp>

#include "page/tiles.h"
#include "shardway/page.h"

namespace shardway::page {

using SceneJson = nlohmann::ordered_json;

SceneJson scene_of(const Plan& plan, const PageOptions& options);

}  // namespace shardway::page
