// What every rank of a whole says, as values of one type.
#pragma once

#include <span>
#include <vector>

#include "shm/group/world.h"
#include "shm/join/handshake.h"

namespace shardway::shm {

template <class T>
std::vector<T> exchanged(const Whole& whole, const T& mine) {
  return words_of<T>(whole.exchange(std::as_bytes(std::span(&mine, 1))), whole.size);
}

}  // namespace shardway::shm
