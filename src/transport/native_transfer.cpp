#include "transport/native_transfer.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/all_to_all_transfer.h"
#include "transport/boxes.h"

namespace shardway {
namespace {

// Whether every rank has a box, and each is one run of memory in a contiguous tensor of this shape. Only
// shapes are asked: all ranks must come to the same answer, and they may lay their tensors out differently.
bool are_parts_in_a_row(const Route& route, const Moves& moves, const std::vector<int64_t>& shape) {
  return static_cast<int64_t>(moves.size()) == route.size &&
         std::all_of(moves.begin(), moves.end(),
                     [&](const Move& m) { return m.mine.volume() > 0 && is_one_run(m.mine, shape); });
}

std::vector<at::Tensor> parts_of(const at::Tensor& t, const Moves& moves) {
  std::vector<at::Tensor> parts;
  for (const Move& move : moves) parts.push_back(view_of(t, move.mine).flatten());
  return parts;
}

bool are_equal(const Moves& moves) {
  return std::all_of(moves.begin(), moves.end(),
                     [&](const Move& m) { return m.mine.volume() == moves[0].mine.volume(); });
}

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

// The engine's own collective, between contiguous tensors.
class NativeCollective : public Transfer {
 public:
  NativeCollective(const at::Tensor& x, const at::Tensor& out)
      : x_(x.contiguous()),
        out_(out),
        landed_(out.is_contiguous() ? out : at::empty(out.sizes(), out.options())) {}

  void all_gather(c10d::Backend& backend, const Route& route) {
    at::Tensor mine = bytes_of(x_);
    if (are_equal(route.pulls)) {
      at::Tensor all = bytes_of(landed_);
      work_ = backend._allgather_base(all, mine);
      return;
    }
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (const at::Tensor& part : parts_of(landed_, route.pulls)) outputs[0].push_back(bytes_of(part));
    std::vector<at::Tensor> inputs{mine};
    work_ = backend.allgather(outputs, inputs);
  }

  void reduce_scatter(c10d::Backend& backend, const Route& route) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = native_op(route);
    if (are_equal(route.pushes)) {
      work_ = backend._reduce_scatter_base(landed_, x_, options);
      return;
    }
    std::vector<at::Tensor> outputs{landed_.flatten()};
    std::vector<std::vector<at::Tensor>> inputs{parts_of(x_, route.pushes)};
    work_ = backend.reduce_scatter(outputs, inputs, options);
  }

  void all_reduce(c10d::Backend& backend, const Route& route) {
    landed_.copy_(x_);
    std::vector<at::Tensor> tensors{landed_};
    c10d::AllreduceOptions options;
    options.reduceOp = native_op(route);
    work_ = backend.allreduce(tensors, options);
  }

  void broadcast(c10d::Backend& backend, const Route& route) {
    const int64_t root = route.pulls[0].peer;
    if (root == route.rank) landed_.copy_(x_);
    std::vector<at::Tensor> tensors{bytes_of(landed_)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    work_ = backend.broadcast(tensors, options);
  }

  void finish() override {
    work_->wait();
    if (!landed_.is_same(out_)) out_.copy_(landed_);
  }

 private:
  at::Tensor x_;
  at::Tensor out_;
  at::Tensor landed_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

bool runs_natively(const Route& route, const at::Tensor& x) {
  const bool is_native_sum = (route.divisor == 1 || route.divisor == route.size) && reduces_natively(x);
  switch (route.pattern) {
    case Pattern::all_gather:
      return route.divisor == 1 && are_parts_in_a_row(route, route.pulls, route.output_shape);
    case Pattern::reduce_scatter:
      return is_native_sum && are_parts_in_a_row(route, route.pushes, route.input_shape);
    case Pattern::all_reduce:
      return is_native_sum && !route.pulls.empty();
    case Pattern::broadcast:
      return route.divisor == 1 && !route.pulls.empty();
    default:
      return false;
  }
}

std::unique_ptr<Transfer> start_natively(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                         const at::Tensor& out, const KnownInputs& known) {
  if (!known.empty() || !runs_natively(route, x)) return start_by_all_to_all(backend, route, x, out, known);
  auto native = std::make_unique<NativeCollective>(x, out);
  switch (route.pattern) {
    case Pattern::all_gather:
      native->all_gather(backend, route);
      break;
    case Pattern::reduce_scatter:
      native->reduce_scatter(backend, route);
      break;
    case Pattern::all_reduce:
      native->all_reduce(backend, route);
      break;
    default:
      native->broadcast(backend, route);
  }
  return native;
}

}  // namespace shardway
