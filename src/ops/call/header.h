// What the ranks tell one another before a collective whose sizes are not known to all: each sends one
// block, and each reads all blocks and comes to the same verdict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shardway/collectives.h"
#include "terms/comparison.h"
#include "transport/common/transport.h"
#include "transport/kept/kept_calls.h"

namespace shardway {

using wire::kMaxDims;

// A hash of what all ranks must say alike: layouts and the plan between them, a mesh.
using wire::CallHash;

CallHash hash_of(const std::string& words);  // the same on every host

// The forward call that a gradient belongs to.
struct Forward {
  Collective collective = Collective::all_gather_v;
  uint64_t number = 0;  // of its exchange of headers among the group's calls; 0 if there was none
};

// What the other ranks need from a rank's tensor in its first exchange.
enum class Wanted : uint8_t { nothing, parts, whole };

// One rank's call, as it understood its arguments.
struct Call {
  Collective collective = Collective::all_gather_v;
  at::Tensor x = {};  // undefined on ranks outside the mesh, and on the receivers of scatter_v
  int64_t dim = 0;    // counted from the front; as given if x is undefined
  int64_t root = -1;  // src or dst, if the collective has one, as a rank of the group
  Op op = Op::sum;
  Grad grad = Grad::sum;
  Sizes sizes = {};                             // as given; what this rank sends, for all_to_all_v
  Sizes recv_sizes = {};                        // as given; all_to_all_v and mesh_scatter
  int64_t out_size = -1;                        // extent of the caller's out along dim; -1 without out
  Wanted wanted = Wanted::nothing;              // for redistribute and the collectives of meshes
  std::optional<CallHash> hash = std::nullopt;  // of what is not compared otherwise
  const RouteCall* leg = nullptr;               // the first moves, if they are known before the meeting
  std::function<std::string()> words = {};      // what the hash stands for: a line per point, "name: value"
  int64_t list_length = 0;  // of the list that contains x; 0: no list, -1: only other ranks know it
  std::optional<Forward> backward_of = std::nullopt;
  std::string problem = {};  // why the arguments are invalid; then only `collective` counts

  bool requires_grad() const;
};

// What all ranks said, once they agree.
class Agreement {
 public:
  Agreement(Group group, Blocks blocks);

  uint64_t number() const { return blocks_.number; }  // see Forward

  int64_t dim_on(int64_t rank) const;
  int64_t size_along_dim(int64_t rank) const;
  int64_t out_size(int64_t rank) const;
  std::optional<c10::DeviceType> device() const;  // of the ranks that have a tensor
  at::ScalarType dtype_on(int64_t rank) const;
  c10::DeviceType device_on(int64_t rank) const;
  Sizes shape_on(int64_t rank) const;
  Sizes send_sizes(int64_t rank) const;  // of all_to_all_v and of the root of scatter_v
  Sizes recv_sizes(int64_t rank) const;  // as given
  bool any_requires_grad() const;

  // Throws the same c10::ValueError on every rank if these two ranks differ in the point.
  void compare(wire::Point point, int64_t first, int64_t other) const;

  // The inputs that came in the blocks; empty if none did.
  KnownInputs known_inputs() const;

 private:
  wire::BlockView block(int64_t rank) const { return rows_[rank]; }
  const wire::BlockHeader& header(int64_t rank) const { return rows_.header(rank); }

  Group group_;
  Blocks blocks_;
  wire::BlockRows rows_;  // in the memory of blocks_
};

// Exchanges the blocks. Collective. Throws the same c10::ValueError on every rank if one rank has a
// problem or if two ranks disagree; the group is usable afterwards.
Agreement agree(const Call& call, const Group& group);

// The same for a list. `calls` has one call per tensor, all of one collective, or a single call that says
// what is wrong with the list. A rank that brings no tensors has a single call that says so. Returns one
// agreement per tensor.
std::vector<Agreement> agree(const std::vector<Call>& calls, const Group& group);

// The same for a transport that moves in the meeting (Transport::meet): it then makes the moves that `decide`
// returns. If given, `kept` keeps what this rank and the others said.
void agree_and_move(const Call& call, const Group& group,
                    const std::function<std::optional<RouteCall>(Agreement)>& decide,
                    KeptCall* kept = nullptr);

// The same for a call that is kept: `moves` are those that follow if every rank says what it said before.
// Otherwise the ranks agree anew: `read` returns the call, and `decide` is asked for the moves.
void agree_again(KeptCall& kept, KeptCalls& calls, const RouteCall& moves, const Group& group,
                 const std::function<Call()>& read,
                 const std::function<std::optional<RouteCall>(const Call&, Agreement)>& decide);

// What the moves of a call are about, once its ranks have agreed. `name` outlives the call.
Subject moves_of(const char* name, uint64_t number);

// What the gradient of such a call is about, as mark and words. A gradient travels without headers.
uint64_t gradient_mark(const char* name, uint64_t number);
std::string gradient_words(const char* name, uint64_t number, at::IntArrayRef shape);

// The number by which the gradient of a gradient names its call.
uint64_t next_order(uint64_t number);

// Called before a gradient travels. Under SHARDWAY_CHECK=1 the ranks agree which gradient it is, unless the
// transport compares that anyway. Collective.
void agree_on_gradient(const Forward& forward, const at::Tensor& grad, const Group& group);

// The most bytes of a tensor that travel in a block. A group's first call decides here how its ranks
// communicate; if that fails, the error names the op.
int64_t slot_bytes_of(const Group& group, const char* op);

// Whether the ranks agree before every call of such a tensor, even if the sizes are given: under
// SHARDWAY_CHECK=1, and where it costs next to nothing. `x` is undefined if this rank has no tensor.
bool checks_every_call(const at::Tensor& x, const Group& group);

// Whether the group's engine moves the tensor on a device. Such a call runs asynchronously on the caller's
// stream; if nothing about the other ranks is unknown, the host waits for nobody.
bool is_on_device(const at::Tensor& x, const Group& group);

// Whether a call in which all ranks bring tensors of one shape exchanges nothing, as if sizes were given.
// That is so on a device, where the host would have to wait to hear the others.
[[gnu::visibility("default")]] bool skips_exchange(const at::Tensor& x, const Group& group);

// For a call whose arguments could not even be read: takes part in the exchange if there is one, so that
// every rank in it throws the problem as c10::ValueError.
[[noreturn]] [[gnu::visibility("default")]] void fail_together(Collective collective,
                                                               const std::string& problem, const Group& group,
                                                               bool sizes_known, const at::Tensor& x = {});

}  // namespace shardway
