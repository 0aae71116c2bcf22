#include "contract.h"

#include <stdexcept>

namespace shardway::testing {

const std::vector<Check>& transport_contract() {
  static const std::vector<Check> checks = [] {
    std::vector<Check> all = checks_of_moves();
    for (const auto& part : {checks_of_reductions(), checks_of_refusals()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return checks;
}

const Check& check_named(const std::string& name) {
  for (const Check& check : transport_contract()) {
    if (check.name == name) return check;
  }
  throw std::invalid_argument("no check is named " + name);
}

}  // namespace shardway::testing
