// What a user may have meant by a word that is not known.
#pragma once

#include <string>
#include <vector>

namespace shardway::cli {

std::string lower_case(std::string text);

// " (did you mean Replicate?)" for the known word that is nearest, whatever its case; "" if none is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace shardway::cli
