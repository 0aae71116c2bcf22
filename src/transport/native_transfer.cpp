#include "transport/native_transfer.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/arrivals.h"
#include "transport/boxes.h"

namespace shardway {
namespace {

bool lie_contiguously(const at::Tensor& t, const std::vector<Move>& moves) {
  return std::all_of(moves.begin(), moves.end(),
                     [&](const Move& m) { return view_of(t, m.mine).is_contiguous(); });
}

// One view per rank, empty for ranks without a move. At most one move per peer.
std::vector<at::Tensor> views_by_rank(const at::Tensor& t, const std::vector<Move>& moves, int64_t ranks) {
  std::vector<at::Tensor> views(static_cast<size_t>(ranks), at::empty({0}, t.options()));
  for (const Move& move : moves) views[static_cast<size_t>(move.peer)] = view_of(t, move.mine).flatten();
  return views;
}

bool has_equal_parts(const Route& route, const std::vector<Move>& moves) {
  return static_cast<int64_t>(moves.size()) == route.size &&
         std::all_of(moves.begin(), moves.end(),
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

class NativeAllGather : public Transfer {
 public:
  NativeAllGather(c10d::Backend& backend, const Route& route, const at::Tensor& x, const at::Tensor& out) {
    at::Tensor mine = bytes_of(x);
    if (has_equal_parts(route, route.pulls) && out.is_contiguous()) {
      at::Tensor all = bytes_of(out);
      work_ = backend._allgather_base(all, mine);
      return;
    }
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (const at::Tensor& view : views_by_rank(out, route.pulls, route.size))
      outputs[0].push_back(bytes_of(view));
    std::vector<at::Tensor> inputs{mine};
    work_ = backend.allgather(outputs, inputs);
  }

  void finish() override { work_->wait(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class NativeReduceScatter : public Transfer {
 public:
  NativeReduceScatter(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                      const at::Tensor& out) {
    c10d::ReduceScatterOptions options;
    options.reduceOp = native_op(route);
    at::Tensor mine = out;
    if (has_equal_parts(route, route.pushes) && x.is_contiguous()) {
      at::Tensor all = x;
      work_ = backend._reduce_scatter_base(mine, all, options);
      return;
    }
    std::vector<at::Tensor> outputs{mine.flatten()};
    std::vector<std::vector<at::Tensor>> inputs{views_by_rank(x, route.pushes, route.size)};
    work_ = backend.reduce_scatter(outputs, inputs, options);
  }

  void finish() override { work_->wait(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

// Packs what goes out by peer, exchanges the bytes, and lands what came in.
class PackedExchange : public Transfer {
 public:
  PackedExchange(c10d::Backend& backend, const Route& route, const at::Tensor& x, const at::Tensor& out,
                 const KnownInputs& known)
      : arrivals_(route, x, out, known) {
    const auto ranks = static_cast<size_t>(route.size);
    const bool sends_nothing = !known.empty() && known[static_cast<size_t>(route.rank)].defined();
    std::vector<int64_t> sent(ranks, 0);
    std::vector<int64_t> received(ranks, 0);
    std::vector<at::Tensor> packed;
    for (const Move& push : route.pushes) {
      if (sends_nothing || push.peer == route.rank || push.mine.volume() == 0) continue;
      packed.push_back(bytes_of(view_of(x, push.mine).contiguous()));
      sent[static_cast<size_t>(push.peer)] += packed.back().numel();
    }
    for (size_t i = 0; i < route.pulls.size(); ++i) {
      if (!arrivals_.buffer(i).defined()) continue;
      buffers_.push_back(bytes_of(arrivals_.buffer(i)));
      received[static_cast<size_t>(route.pulls[i].peer)] += buffers_.back().numel();
    }
    const auto bytes = x.options().dtype(at::kByte);
    outgoing_ = packed.empty() ? at::empty({0}, bytes) : at::cat(packed);
    int64_t total = 0;
    for (const at::Tensor& buffer : buffers_) total += buffer.numel();
    incoming_ = at::empty({total}, bytes);
    work_ = backend.alltoall_base(incoming_, outgoing_, received, sent);
    arrivals_.land_known();
  }

  void finish() override {
    work_->wait();
    int64_t offset = 0;
    for (const at::Tensor& buffer : buffers_) {
      buffer.copy_(incoming_.narrow(0, offset, buffer.numel()));
      offset += buffer.numel();
    }
    arrivals_.land_received();
  }

 private:
  Arrivals arrivals_;
  std::vector<at::Tensor> buffers_;
  at::Tensor outgoing_;
  at::Tensor incoming_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::unique_ptr<Transfer> start_natively(c10::intrusive_ptr<c10d::Backend> backend, const Route& route,
                                         const at::Tensor& x, const at::Tensor& out,
                                         const KnownInputs& known) {
  if (known.empty()) {
    const bool is_gather = route.pattern == Pattern::all_gather && route.divisor == 1;
    if (is_gather && x.is_contiguous() && lie_contiguously(out, route.pulls)) {
      return std::make_unique<NativeAllGather>(*backend, route, x, out);
    }
    const bool is_native_divisor = route.divisor == 1 || route.divisor == route.size;
    if (route.pattern == Pattern::reduce_scatter && is_native_divisor && reduces_natively(x) &&
        out.is_contiguous() && lie_contiguously(x, route.pushes)) {
      return std::make_unique<NativeReduceScatter>(*backend, route, x, out);
    }
  }
  return std::make_unique<PackedExchange>(*backend, route, x, out, known);
}

}  // namespace shardway
