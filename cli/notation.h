// What a user writes for a mesh, a shape, a dtype, placements and bytes. Errors are std::invalid_argument and
// name the column that is wrong and what would be right there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardway/layout.h"

namespace shardway::cli {

// dp=2,tp=4 or 2x4; with ranks of its own dp=2@4,5 or 2x4@8-15.
Mesh read_mesh(const std::string& text);

// 4096x4096, or scalar.
std::vector<int64_t> read_shape(const std::string& text);

// 0-3,8: the ranks in this order.
std::vector<int64_t> read_rank_list(const std::string& text);

// bf16, or torch's name for it: bfloat16, torch.bfloat16.
DType read_dtype(const std::string& text);

// One per mesh dim: R, S0, S0[3,0,5], P, P(max); S0.1,S0.0 where mesh dim 1 splits tensor dim 0 first. Or as
// torch writes them: Replicate(), Shard(0), Shard(dim=0), Partial(sum), in any case, with spaces after commas
// and in brackets.
struct OrderedPlacements {
  std::vector<Placement> placements = {};
  ShardOrder order = {};  // empty: ascending
};

OrderedPlacements read_placements(const std::string& text, int64_t tensor_dims);

// 1073741824, 2GiB, 1.5MiB, 10MB.
int64_t read_bytes(const std::string& text);

// 8: a count of at least 1.
int64_t read_count(const std::string& text, const std::string& of_what);

// 2x4: two hosts of four ranks; 4,2,1: three hosts of these many. Returns the host of each rank.
std::vector<int64_t> read_hosts(const std::string& text);

// 0=1:65536: lengths of a tensor dim from the first to the last, doubling.
struct Sweep {
  int64_t dim = 0;
  int64_t first = 1;
  int64_t last = 1;
};

Sweep read_sweep(const std::string& text);

}  // namespace shardway::cli
