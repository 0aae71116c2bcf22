// What the doctor says of one thing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardway::cli {

// slow: it works, and could be faster or larger. broken: something that was asked for does not work.
enum class Health : uint8_t { ok, slow, broken };

struct DoctorLine {
  std::string subject = {};  // "cores"
  Health health = Health::ok;
  std::string what = {};    // one sentence without a full stop
  std::string advice = {};  // what to do; empty if there is nothing to do
};

using DoctorLines = std::vector<DoctorLine>;

// "ok", "slow", "broken"; an unknown word is std::invalid_argument.
const char* name_of(Health health);
Health health_named(const std::string& word);

}  // namespace shardway::cli
