#include "cli/doctor/doctor_line.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace shardway::cli {
namespace {

constexpr std::array kHealthNames = {"ok", "slow", "broken"};

}  // namespace

const char* name_of(Health health) { return kHealthNames.at(static_cast<size_t>(health)); }

Health health_named(const std::string& word) {
  const auto found = std::find(kHealthNames.begin(), kHealthNames.end(), word);
  if (found == kHealthNames.end()) throw std::invalid_argument("'" + word + "' is not a state of health");
  return static_cast<Health>(found - kHealthNames.begin());
}

}  // namespace shardway::cli
