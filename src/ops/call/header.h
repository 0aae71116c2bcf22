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

namespace shardway {

using wire::kMaxDims;

// Of what all ranks must say alike: layouts and the plan between them, a mesh.
using wire::CallHash;

CallHash hash_of(const std::string& words);  // the same on every host

// A call whose gradient another one is.
struct Forward {
  Collective collective = Collective::all_gather_v;
  uint64_t number = 0;  // of its exchange of headers among the group's calls; 0 where there was none
};

// What the other ranks need of a rank's tensor in the first exchange of it.
enum class Wanted : uint8_t { nothing, parts, whole };

// One rank's call, as it understood its arguments.
struct Call {
  Collective collective = Collective::all_gather_v;
  at::Tensor x = {};  // undefined on a rank outside the mesh, and on those that scatter_v gives to
  int64_t dim = 0;    // counted from the front, but where x is undefined as it was given
  int64_t root = -1;  // of those that have one: src or dst, as a rank of the group
  Op op = Op::sum;
  Grad grad = Grad::sum;
  Sizes sizes = {};                             // as given; what this rank sends, for all_to_all_v
  Sizes recv_sizes = {};                        // as given; all_to_all_v and mesh_scatter
  int64_t out_size = -1;                        // extent of the caller's out along dim; -1 without
  Wanted wanted = Wanted::nothing;              // redistribute and the collectives of meshes
  std::optional<CallHash> hash = std::nullopt;  // of what is not compared otherwise
  const RouteCall* leg = nullptr;               // the first moves, where they are known before the meeting
  std::function<std::string()> words = {};      // what the hash stands for: a line per point, "name: value"
  int64_t list_length = 0;  // of the list that x is one tensor of; 0: of none, -1: of one that others know
  std::optional<Forward> backward_of = std::nullopt;
  std::string problem = {};  // why the arguments cannot be; then only `collective` counts

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

  // Throws the same c10::ValueError on every rank where these two differ in the point.
  void compare(wire::Point point, int64_t first, int64_t other) const;

  // The inputs that came in the blocks; empty when none did.
  KnownInputs known_inputs() const;

 private:
  wire::BlockView block(int64_t rank) const;
  const wire::BlockHeader& header(int64_t rank) const;

  Group group_;
  Blocks blocks_;
};

// Exchanges the blocks: collective. Throws the same c10::ValueError on every rank when one rank has a
// problem or when two ranks disagree; the group is usable afterwards.
Agreement agree(const Call& call, const Group& group);

// The same of a list: a call of every tensor, all of one collective, or a single one that says what is wrong
// with the list. A rank that brings no tensors has a single call that says so. One agreement per tensor.
std::vector<Agreement> agree(const std::vector<Call>& calls, const Group& group);

// The same, of a transport that moves in the meeting (Transport::meet): then makes the moves that `decide`
// gives.
void agree_and_move(const Call& call, const Group& group,
                    const std::function<std::optional<RouteCall>(Agreement)>& decide);

// What the moves of a call are about, once its ranks have agreed. `name` outlives the call.
Subject moves_of(const char* name, uint64_t number);

// What its gradient is about, which travels without headers: mark and words.
uint64_t gradient_mark(const char* name, uint64_t number);
std::string gradient_words(const char* name, uint64_t number, at::IntArrayRef shape);

// The number of the gradient's own call, for its gradient.
uint64_t next_order(uint64_t number);

// Before a gradient travels: under SHARDWAY_CHECK=1 the ranks agree which one it is, unless the transport
// compares that anyway. Collective.
void agree_on_gradient(const Forward& forward, const at::Tensor& grad, const Group& group);

// Whether the ranks agree before every call of such a tensor, also when the sizes are given: under
// SHARDWAY_CHECK=1, and where it costs next to nothing. `x` is undefined where a rank has none to show.
bool checks_every_call(const at::Tensor& x, const Group& group);

// Whether the group's engine moves the tensor on a device. Such a call makes its way by itself, on the
// caller's stream; one in which nothing is unknown waits for nobody.
bool is_on_device(const at::Tensor& x, const Group& group);

// Whether a call in which the ranks bring tensors of one shape exchanges nothing, as if sizes were given: on
// a device, where to hear of the others the host would have to wait.
[[gnu::visibility("default")]] bool skips_exchange(const at::Tensor& x, const Group& group);

// For a call whose arguments could not even be read: takes part in the exchange when there is one, and
// throws on every rank that does.
[[noreturn]] [[gnu::visibility("default")]] void fail_together(Collective collective,
                                                               const std::string& problem, const Group& group,
                                                               bool sizes_known, const at::Tensor& x = {});

}  // namespace shardway
