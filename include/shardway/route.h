// Where the pieces of a tensor go: boxes that move from rank to rank, and are added where they meet.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardway/dims.h"
#include "shardway/kept_memory.h"

namespace [[gnu::visibility("default")]] shardway {

// A half-open n-d interval: an offset and an extent per tensor dim.
struct Box {
  Dims offset = {};
  Dims extent = {};

  static Box whole(Dims shape);

  int64_t volume() const;
  bool operator==(const Box&) const = default;
};

bool overlap(const Box& a, const Box& b);
bool contains(const Box& outer, const Box& inner);
std::string to_string(const Box& box);

// What happens where several moves land on one element. `avg` is `sum` with the route's divisor.
enum class Op : uint8_t { sum, avg, min, max, product };

const char* name_of(Op op);
Op op_from_name(const std::string& name);  // torch's names, and mean for avg

// An offset that only the peer knows: the sender says where a box comes from, the receiver where it lands.
inline constexpr int64_t kUnknownOffset = -1;

// One box between this rank and a peer. For a pull, `mine` lies in this rank's output and `theirs` in
// the peer's input; for a push, `mine` lies in this rank's input and `theirs` in the peer's output.
struct Move {
  int64_t peer = 0;
  Box mine = {};
  Box theirs = {};

  bool operator==(const Move&) const = default;
};
using Moves = std::vector<Move, KeptMemory<Move>>;

// Which collective a route is, for engines with a native form of it. `own` is not a collective: every rank
// moves its own boxes, and nobody communicates.
enum class Pattern : uint8_t { exchange, all_gather, reduce_scatter, all_to_all, all_reduce, broadcast, own };

// One rank's part of a collective: what it pulls into its output and what it pushes out of its input.
//
// Invariants: pulls and pushes are ordered by peer; the k-th push of rank a to rank b is the k-th pull
// of b from a. Where several pulls land on one element they are combined by `op` in rank order; the
// result is divided by `divisor`. Elements on which nothing lands are left as they are.
//
// Example, two ranks with 1 and 2 rows gathered along dim 0, seen by rank 0 (columns left out):
//   pulls  {peer 0, mine [0,1), theirs [0,1)}, {peer 1, mine [1,3), theirs [0,2)}
//   pushes {peer 0, mine [0,1), theirs [0,1)}, {peer 1, mine [0,1), theirs [0,1)}
struct Route {
  int64_t rank = 0;
  int64_t size = 1;
  std::vector<int64_t> input_shape = {};
  std::vector<int64_t> output_shape = {};
  Moves pulls = {};
  Moves pushes = {};
  Op op = Op::sum;
  int64_t divisor = 1;
  Pattern pattern = Pattern::exchange;

  bool operator==(const Route&) const = default;
};

// The adjoint: it makes every move the other way, sums where the route copied and copies where it summed.
// Throws std::invalid_argument for min, max and product, which are not linear.
Route transposed(const Route& route);

// Only the moves of a rank to itself, which need no communication.
Route own_part(const Route& route);

// Throws std::invalid_argument naming the first move that breaks an invariant of Route.
void validate(const Route& route);

// A tensor split along one dim over the ranks of a group: the split dim's size per rank, and the shape,
// whose extent along `dim` is not read.
struct Split {
  std::vector<int64_t> shape = {};
  int64_t dim = 0;
  std::vector<int64_t> sizes = {};
};

// Every rank's part, one after another, on every rank.
Route all_gather_route(const Split& split, int64_t rank);

// Every rank holds an addend of the whole tensor; this rank gets its part of the combination.
Route reduce_scatter_route(const Split& split, int64_t rank, Op op = Op::sum);

// Every rank holds an addend of the whole tensor; every rank gets the whole combination.
Route all_reduce_route(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks, Op op = Op::sum);

// The tensor of rank `root` on every rank. Its adjoint adds up all tensors on the root; the other ranks get
// nothing.
Route broadcast_route(const std::vector<int64_t>& shape, int64_t rank, int64_t ranks, int64_t root);

// Every rank's part, one after another, on rank `root`; the others get a tensor without rows.
Route gather_route(const Split& split, int64_t rank, int64_t root);

// This rank's part of the whole tensor that rank `root` holds; the others bring a tensor without rows.
Route scatter_route(const Split& split, int64_t rank, int64_t root);

// What one rank knows about an all-to-all along one dim. The offsets say where a block lies in a peer's
// input and output; they are empty if this rank was not told.
struct AllToAllSizes {
  std::vector<int64_t> send = {};
  std::vector<int64_t> recv = {};
  std::vector<int64_t> offset_in_input = {};   // of the block that peer r sends here
  std::vector<int64_t> offset_in_output = {};  // of the block that this rank sends to peer r
};

// Block r of this rank's tensor goes to rank r; the blocks that arrive are concatenated in rank order.
Route all_to_all_route(const std::vector<int64_t>& shape, int64_t dim, const AllToAllSizes& sizes,
                       int64_t rank);

// The sizes that torch.chunk gives: ceil(length / parts) each until nothing is left.
std::vector<int64_t> chunk_sizes(int64_t length, int64_t parts);

// A landing is a part of the output on which the same pulls land. Its addends say which elements of these
// pulls land there.
struct Addend {
  int64_t pull = 0;  // index into the route's pulls
  Box from = {};     // within that pull's box
};
struct Landing {
  Box box = {};
  std::vector<Addend> addends = {};  // in rank order
};

// Disjoint landings that cover exactly what the pulls write. Pulls that overlap in part are cut:
//   pulls of [0,2) and [1,3)  →  [0,1) from the first, [1,2) from both, [2,3) from the second.
std::vector<Landing> landings(const Route& route);

// Whether some element of the output combines several pulls, or is divided.
bool reduces(const std::vector<Landing>& landings, const Route& route);

// Whether the landings fill the output.
bool fills_output(const std::vector<Landing>& landings, const Route& route);

}  // namespace shardway
