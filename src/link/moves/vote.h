// How the ranks of a group find out whether they mean the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "shardway/group.h"
#include "shardway/prepare.h"

namespace shardway::link {

// A prepared call in which every rank says a word and hears those of all others.
class [[gnu::visibility("default")]] Vote {
 public:
  explicit Vote(const Group& group);  // collective

  // Whether all ranks say this word, and it is not 0. The same on every rank. Collective.
  bool all_say(int64_t word);

 private:
  at::Tensor said_;  // the word and its negative: the least of each is what was said least and most
  PreparedResult<at::Tensor> call_;
};

}  // namespace shardway::link
