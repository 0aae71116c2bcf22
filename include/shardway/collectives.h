// Collectives of tensors whose size differs per rank, differentiable, with no padding.
//
// All are collective: every rank of the group calls them in the same order, with the same dtype, number
// of dims, sizes of the other dims, dim and op. Leaving the sizes out costs one small exchange, in which
// all of that is compared and a rank with bad arguments is reported to all (c10::ValueError on every
// rank, the group stays usable). With sizes given nothing is exchanged and nothing is compared, unless the
// ranks share a host, where it costs next to nothing, or SHARDWAY_CHECK=1 is in the environment of every
// rank.
//
// all_reduce and broadcast have no sizes. For CPU tensors they exchange the rest as if sizes were left out.
// For tensors on a device they exchange nothing, so that the host does not wait.
//
// An input is never changed, and a result never shares memory with it, except if there is no group or
// only one rank: then a call without `out` returns its input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shardway/group.h"
#include "shardway/route.h"

namespace [[gnu::visibility("default")]] shardway {

// What the backward of a gather does with the gradients that the other ranks have for this rank's part.
enum class Grad : uint8_t {
  sum,    // adds them: the true adjoint; backward is a collective that every rank runs
  mean,   // adds them and divides by the number of ranks: for a loss that is the same on every rank
  local,  // drops them: no communication
};

using Sizes = std::vector<int64_t>;

// A tensor and the size of every rank's part along the op's dim.
struct Ragged {
  at::Tensor tensor;
  Sizes sizes;
};

// A call under way. `wait` returns what the plain call would, differentiable, and may be called repeatedly.
// A call whose handle is dropped still finishes. Any thread may use a handle.
template <class Result>
class Async {
 public:
  // `is_over` tells whether `finish` would return, or throw, without waiting for another rank.
  Async(std::function<Result()> finish, std::function<bool()> is_over)
      : state_(std::make_shared<State>(std::move(finish), std::move(is_over))) {}

  // Of a call that is over already.
  explicit Async(Result result) : state_(std::make_shared<State>(std::move(result))) {}

  Result wait() const {
    const std::lock_guard lock(state_->mutex);
    if (!state_->result) {
      state_->result = state_->finish();
      state_->finish = nullptr;  // releases what they hold
      state_->is_over = nullptr;
    }
    return *state_->result;
  }

  // Whether the call is over, with a result or with an error that wait() throws. Returns at once. False also
  // while another thread is in wait().
  //
  // CPU tensors of an engine such as gloo: its messages cannot be asked, so the first question starts a
  // thread that waits for them, and the answer is true once that thread has seen them all.
  bool is_completed() const {
    const std::unique_lock lock(state_->mutex, std::try_to_lock);
    return lock && (state_->result || state_->is_over());
  }

 private:
  struct State {
    State(std::function<Result()> f, std::function<bool()> o) : finish(std::move(f)), is_over(std::move(o)) {}
    explicit State(Result r) : result(std::move(r)) {}
    std::mutex mutex;
    std::function<Result()> finish;  // this and the next are empty once there is a result
    std::function<bool()> is_over;
    std::optional<Result> result;
  };
  std::shared_ptr<State> state_;
};

struct AllGatherOptions {
  int64_t dim = 0;
  std::optional<Sizes> sizes = std::nullopt;  // every rank's size along dim
  Grad grad = Grad::sum;
  std::optional<at::Tensor> out = std::nullopt;
  Group group = {};
};

// The tensors of all ranks, concatenated along dim in rank order, and their sizes.
// Adjoint (Grad::sum): reduce_scatter_v of the gradient with these sizes.
Ragged all_gather_v(const at::Tensor& x, const AllGatherOptions& options = {});
Async<Ragged> all_gather_v_async(const at::Tensor& x, const AllGatherOptions& options = {});

struct ReduceScatterOptions {
  std::optional<Sizes> sizes = std::nullopt;  // every rank's part along dim; left out: as torch.chunk splits
  int64_t dim = 0;
  Op op = Op::sum;
  std::optional<at::Tensor> out = std::nullopt;
  Group group = {};
};

// This rank's part, along dim, of the elementwise combination of all ranks' tensors. Addends are taken
// in rank order; f16 and bf16 accumulate in f32 and round once.
// Adjoint: all_gather_v of the gradient (divided by the number of ranks for avg); min, max and product have
// none.
at::Tensor reduce_scatter_v(const at::Tensor& x, const ReduceScatterOptions& options = {});
Async<at::Tensor> reduce_scatter_v_async(const at::Tensor& x, const ReduceScatterOptions& options = {});

struct AllToAllOptions {
  int64_t dim = 0;
  std::optional<Sizes> recv_sizes = std::nullopt;  // what each rank sends here
  std::optional<at::Tensor> out = std::nullopt;
  Group group = {};
};

// Block r of this rank's tensor along dim goes to rank r; what arrives is concatenated in rank order.
// Adjoint: all_to_all_v of the gradient with send and receive sizes interchanged.
Ragged all_to_all_v(const at::Tensor& x, const Sizes& send_sizes, const AllToAllOptions& options = {});
Async<Ragged> all_to_all_v_async(const at::Tensor& x, const Sizes& send_sizes,
                                 const AllToAllOptions& options = {});

struct AllReduceOptions {
  Op op = Op::sum;
  Grad grad = Grad::sum;
  std::optional<at::Tensor> out = std::nullopt;
  Group group = {};
};

// The elementwise combination of all ranks' tensors, which have one shape, on every rank: the same bits on
// all of them. Addends are taken in rank order; f16 and bf16 accumulate in f32 and round once.
// Adjoint (Grad::sum): all_reduce of the gradient (divided by the number of ranks for avg); min, max and
// product have none. Grad::local keeps this rank's own gradient.
at::Tensor all_reduce(const at::Tensor& x, const AllReduceOptions& options = {});
Async<at::Tensor> all_reduce_async(const at::Tensor& x, const AllReduceOptions& options = {});

struct BroadcastOptions {
  int64_t src = 0;                                  // a global rank, as torch.distributed counts
  std::optional<int64_t> group_src = std::nullopt;  // the rank within the group instead
  Group group = {};
};

// The tensor of rank src, on every rank. The others bring a tensor of the same shape and dtype.
// Adjoint: the sum of all ranks' gradients on src, zeros on the others.
at::Tensor broadcast(const at::Tensor& x, const BroadcastOptions& options = {});
Async<at::Tensor> broadcast_async(const at::Tensor& x, const BroadcastOptions& options = {});

struct GatherOptions {
  int64_t dst = 0;                                  // a global rank, as torch.distributed counts
  std::optional<int64_t> group_dst = std::nullopt;  // the rank within the group instead
  int64_t dim = 0;
  std::optional<Sizes> sizes = std::nullopt;  // every rank's size along dim
  Group group = {};
};

// The tensors of all ranks, concatenated along dim in rank order, on rank dst, and their sizes on every rank.
// The other ranks get a tensor without rows.
// Adjoint: scatter_v of dst's gradient with these sizes; every rank runs it.
Ragged gather_v(const at::Tensor& x, const GatherOptions& options = {});
Async<Ragged> gather_v_async(const at::Tensor& x, const GatherOptions& options = {});

struct ScatterOptions {
  int64_t src = 0;                                  // a global rank, as torch.distributed counts
  std::optional<int64_t> group_src = std::nullopt;  // the rank within the group instead
  int64_t dim = 0;
  std::optional<Sizes> sizes = std::nullopt;  // every rank's part along dim; left out: as torch.chunk splits
  Group group = {};
};

// This rank's part, along dim, of the tensor of rank src. The others bring no tensor: src tells them shape,
// dtype and sizes, and the values that they pass as x and sizes are not read.
// Adjoint: gather_v of the gradients to src; every rank runs it. To differentiate that gradient again, the
// others pass an x without rows that requires grad, and ask autograd for its gradient.
at::Tensor scatter_v(const std::optional<at::Tensor>& x, const ScatterOptions& options = {});
Async<at::Tensor> scatter_v_async(const std::optional<at::Tensor>& x, const ScatterOptions& options = {});

// Tensors, and for each the size of every rank's part along the op's dim.
struct RaggedList {
  std::vector<at::Tensor> tensors;
  std::vector<Sizes> sizes;
};

struct AllGatherListOptions {
  int64_t dim = 0;
  std::optional<std::vector<Sizes>> sizes = std::nullopt;  // every rank's per tensor; only checked on a CPU
  Grad grad = Grad::sum;
  Group group = {};
};

// all_gather_v of each tensor of a list in one exchange. The tensors are on one device and may have any
// shapes and dtypes. Small ones are packed together. The ranks compare their lists, except for tensors on a
// device whose sizes are given. The gradients of a list travel as a list, too.
RaggedList all_gather_v(const std::vector<at::Tensor>& xs, const AllGatherListOptions& options = {});
Async<RaggedList> all_gather_v_async(const std::vector<at::Tensor>& xs,
                                     const AllGatherListOptions& options = {});

struct ReduceScatterListOptions {
  std::optional<std::vector<Sizes>> sizes = std::nullopt;  // for each tensor; left out: as torch.chunk splits
  int64_t dim = 0;
  Op op = Op::sum;
  Group group = {};
};

// reduce_scatter_v of each tensor of a list in one exchange, like all_gather_v of a list.
std::vector<at::Tensor> reduce_scatter_v(const std::vector<at::Tensor>& xs,
                                         const ReduceScatterListOptions& options = {});
Async<std::vector<at::Tensor>> reduce_scatter_v_async(const std::vector<at::Tensor>& xs,
                                                      const ReduceScatterListOptions& options = {});

struct AllToAllListOptions {
  int64_t dim = 0;
  std::optional<std::vector<Sizes>> recv_sizes = std::nullopt;  // for each tensor; only checked on a CPU
  Group group = {};
};

// all_to_all_v of each tensor of a list in one exchange, with the send_sizes of each.
RaggedList all_to_all_v(const std::vector<at::Tensor>& xs, const std::vector<Sizes>& send_sizes,
                        const AllToAllListOptions& options = {});
Async<RaggedList> all_to_all_v_async(const std::vector<at::Tensor>& xs, const std::vector<Sizes>& send_sizes,
                                     const AllToAllListOptions& options = {});

struct GatherListOptions {
  int64_t dst = 0;                                  // a global rank, as torch.distributed counts
  std::optional<int64_t> group_dst = std::nullopt;  // the rank within the group instead
  int64_t dim = 0;
  std::optional<std::vector<Sizes>> sizes = std::nullopt;  // every rank's per tensor; only checked on a CPU
  Group group = {};
};

// gather_v of each tensor of a list in one exchange.
RaggedList gather_v(const std::vector<at::Tensor>& xs, const GatherListOptions& options = {});
Async<RaggedList> gather_v_async(const std::vector<at::Tensor>& xs, const GatherListOptions& options = {});

struct ScatterListOptions {
  int64_t src = 0;                                  // a global rank, as torch.distributed counts
  std::optional<int64_t> group_src = std::nullopt;  // the rank within the group instead
  int64_t dim = 0;
  std::optional<std::vector<Sizes>> sizes = std::nullopt;  // for each tensor; left out: as torch.chunk splits
  Group group = {};
};

// scatter_v of each tensor of a list in one exchange. Ranks other than src bring an empty list or, to
// differentiate the gradients again, tensors without rows.
std::vector<at::Tensor> scatter_v(const std::vector<at::Tensor>& xs, const ScatterListOptions& options = {});
Async<std::vector<at::Tensor>> scatter_v_async(const std::vector<at::Tensor>& xs,
                                               const ScatterListOptions& options = {});

struct GatherSizesOptions {
  int64_t dim = 0;
  Group group = {};
};

// Every rank's size along dim. The other dims may differ between the ranks.
Sizes gather_sizes(const at::Tensor& x, const GatherSizesOptions& options = {});

// This rank's part of a list with one tensor per rank, and the size of each along dim 0. Local.
Ragged split_by_rank(const std::vector<at::Tensor>& parts, const Group& group = {});

// The same for one tensor that has the ranks along dim 0. Local.
Ragged split_by_rank(const at::Tensor& parts, const Group& group = {});

}  // namespace shardway
