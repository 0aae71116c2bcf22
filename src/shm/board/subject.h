// What a call is about. Ranks whose calls are about different things find that out before one of them reads
// another's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace shardway::shm {

struct Subject {
  uint64_t mark = 0;                        // the same on every rank of one call
  const char* name = "call";                // of the op, for the record of calls; never freed
  std::function<std::string()> words = {};  // for the error, where the marks of two ranks differ
};

// The mark of one call among several of a kind.
constexpr uint64_t mark_of(uint64_t kind, uint64_t number) {
  return (kind ^ number) * 0x9e3779b97f4a7c15U + (number << 1 | 1);
}

constexpr uint64_t mark_of(std::string_view kind, uint64_t number = 0) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : kind) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return mark_of(hash, number);
}

}  // namespace shardway::shm
