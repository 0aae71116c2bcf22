// What the ranks of a contender are asked to do, and what comes out when they do it right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardway::bench {

enum class Op : uint8_t { all_gather_v, reduce_scatter_v, all_to_all_v, all_reduce, broadcast, barrier };

// The caller's own warm output; a fresh one while the last three stay alive; a fresh one and nothing cached.
enum class Output : uint8_t { given, steady, first };

struct Task {
  Op op = Op::all_gather_v;
  Output output = Output::given;
  std::string variant = {};  // of the contender
  int64_t repeats = 1;
  std::vector<int64_t> sizes = {};  // f32 elements per rank

  int64_t ranks() const { return static_cast<int64_t>(sizes.size()); }
  int64_t total() const { return start(ranks()); }
  int64_t start(int64_t rank) const;

  // Every rank gathers all parts; or has a tensor of the total, whose part r is reduced on, or goes to, rank
  // r; or has all of a tensor, that of rank 0 being the one that is sent to all.
  int64_t input_elements(int64_t rank) const;
  int64_t output_elements(int64_t rank) const;
};

// "all_gather_v steady offset=64 10 3 5": op, output, variant, repeats, sizes. Throws std::invalid_argument.
Task task_from(const std::string& line);

// Element i of a rank's input in call number `turn`: small integers, so that sums in f32 are exact.
inline float element(int64_t rank, int64_t i, int64_t turn) {
  return static_cast<float>(static_cast<int32_t>((i & 127) + 3 * rank + (turn & 7)));
}

// Element i of a rank's output.
float expected_element(const Task& task, int64_t rank, int64_t i, int64_t turn);

}  // namespace shardway::bench
