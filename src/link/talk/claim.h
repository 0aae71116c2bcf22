// Who a process says that it is.
#pragma once

#include <cstdint>
#include <string>

#include "link/talk/wire.h"

namespace shardway::link {

struct Claim {
  std::string role;
  int64_t rank = 0;
  int64_t size = 1;
  std::string process;  // host and process number, for people
  std::string job;      // what a launcher calls the job; empty without one

  // This process's. Throws std::invalid_argument if role, rank or size is invalid.
  static Claim own(const std::string& role, int64_t rank, int64_t size);

  // Another's. Throws NotOurs if it is invalid.
  static Claim read(const Json& said);

  Json said() const;

  bool operator==(const Claim&) const = default;
};

std::string to_string(const Claim& claim);  // role trainer rank 0

}  // namespace shardway::link
