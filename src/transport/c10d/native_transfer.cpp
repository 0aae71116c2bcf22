#include "transport/c10d/native_transfer.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/c10d/all_to_all_transfer.h"
#include "transport/common/boxes.h"
#include "transport/common/packing.h"
#include "transport/common/starting_stream.h"

namespace shardway {
namespace {

bool reduces_natively(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
    case at::kInt:
    case at::kLong:
      return !at::globalContext().deterministicAlgorithms();
    default:
      return false;
  }
}

c10d::ReduceOp native_op(const Route& route) {
  switch (route.op) {
    case Op::min:
      return c10d::ReduceOp::MIN;
    case Op::max:
      return c10d::ReduceOp::MAX;
    case Op::product:
      return c10d::ReduceOp::PRODUCT;
    default:
      return route.divisor == 1 ? c10d::ReduceOp::SUM : c10d::ReduceOp::AVG;
  }
}

// Each rank's elements of a run, as views; empty if a rank has no box.
std::vector<at::Tensor> shares_of(const at::Tensor& run, const Moves& moves, int64_t ranks) {
  std::vector<at::Tensor> shares;
  const at::Tensor elements = run.view({-1});
  int64_t offset = 0;
  auto move = moves.begin();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int64_t count = 0;
    for (; move != moves.end() && move->peer == rank; ++move) count += move->mine.volume();
    shares.push_back(elements.narrow(0, offset, count));
    offset += count;
  }
  return shares;
}

bool are_equal(const std::vector<at::Tensor>& shares) {
  return std::all_of(shares.begin(), shares.end(),
                     [&](const at::Tensor& share) { return share.numel() == shares[0].numel(); });
}

at::Tensor as_landing(const at::Tensor& out) {
  return out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
}

// The engine's own collective, between contiguous tensors.
class NativeCollective : public Transfer {
 public:
  NativeCollective(const Route& route, const at::Tensor& x, const at::Tensor& out)
      : route_(route), x_(x), out_(out), started_(x) {}

  void all_gather(c10d::Backend& backend) {
    input_ = x_.contiguous();
    landed_ = lies_in_order(out_, route_.pulls) ? out_ : at::empty({volume_of(route_.pulls)}, out_.options());
    at::Tensor mine = bytes_of(input_);
    const std::vector<at::Tensor> shares = shares_of(landed_, route_.pulls, route_.size);
    if (are_equal(shares)) {
      at::Tensor all = bytes_of(landed_);
      work_ = backend._allgather_base(all, mine);
      return;
    }
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (const at::Tensor& share : shares) outputs[0].push_back(bytes_of(share));
    std::vector<at::Tensor> inputs{mine};
    work_ = backend.allgather(outputs, inputs);
  }

  void reduce_scatter(c10d::Backend& backend) {
    input_ = lies_in_order(x_, route_.pushes) ? x_ : packed(x_, route_.pushes);
    landed_ = as_landing(out_);
    c10d::ReduceScatterOptions options;
    options.reduceOp = native_op(route_);
    const std::vector<at::Tensor> shares = shares_of(input_, route_.pushes, route_.size);
    if (are_equal(shares)) {
      work_ = backend._reduce_scatter_base(landed_, input_, options);
      return;
    }
    std::vector<at::Tensor> outputs{landed_.view({-1})};
    std::vector<std::vector<at::Tensor>> inputs{shares};
    work_ = backend.reduce_scatter(outputs, inputs, options);
  }

  void all_reduce(c10d::Backend& backend) {
    landed_ = as_landing(out_);
    landed_.copy_(x_);
    std::vector<at::Tensor> tensors{landed_};
    c10d::AllreduceOptions options;
    options.reduceOp = native_op(route_);
    work_ = backend.allreduce(tensors, options);
  }

  void broadcast(c10d::Backend& backend) {
    const int64_t root = route_.pulls[0].peer;
    landed_ = as_landing(out_);
    if (root == route_.rank) landed_.copy_(x_);
    std::vector<at::Tensor> tensors{bytes_of(landed_)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    work_ = backend.broadcast(tensors, options);
  }

  void finish() override {
    work_->wait();
    started_.lend({input_, landed_, out_});
    if (!landed_.is_same(out_)) land();
    if (route_.pattern == Pattern::all_gather && route_.divisor != 1) out_.div_(route_.divisor);
  }
  bool is_over() override { return work_->isCompleted(); }

 private:
  void land() {
    if (route_.pattern == Pattern::all_gather) return unpack(landed_, route_.pulls, out_);
    out_.copy_(landed_);
  }

  Route route_;
  at::Tensor x_;
  at::Tensor out_;
  StartingStream started_;
  at::Tensor input_;   // what is sent: x, or packed from it
  at::Tensor landed_;  // what is received: out, or unpacked into it
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

bool runs_natively(const Route& route, const at::Tensor& x) {
  const bool is_native_sum = (route.divisor == 1 || route.divisor == route.size) && reduces_natively(x);
  switch (route.pattern) {
    case Pattern::all_gather:
      return split_dim(route.pulls, route.output_shape).has_value();
    case Pattern::reduce_scatter:
      return is_native_sum && split_dim(route.pushes, route.input_shape).has_value();
    case Pattern::all_reduce:
      return is_native_sum && !route.pulls.empty();
    case Pattern::broadcast:
      return route.divisor == 1 && !route.pulls.empty();
    default:
      return false;
  }
}

std::unique_ptr<Transfer> start_natively(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                         const at::Tensor& out) {
  const auto all_to_all = [&](auto&... arguments) { return backend.alltoall_base(arguments...); };
  if (!runs_natively(route, x)) return start_by_all_to_all(all_to_all, route, x, out);
  auto native = std::make_unique<NativeCollective>(route, x, out);
  switch (route.pattern) {
    case Pattern::all_gather:
      native->all_gather(backend);
      break;
    case Pattern::reduce_scatter:
      native->reduce_scatter(backend);
      break;
    case Pattern::all_reduce:
      native->all_reduce(backend);
      break;
    default:
      native->broadcast(backend);
  }
  return native;
}

}  // namespace shardway
