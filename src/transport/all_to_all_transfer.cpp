#include "transport/all_to_all_transfer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "transport/arrivals.h"
#include "transport/boxes.h"

namespace shardway {
namespace {

using ByteCounts = std::vector<int64_t>;  // by rank

ByteCounts bytes_by_peer(const Route& route, const Moves& moves, int64_t element_size) {
  ByteCounts bytes(static_cast<size_t>(route.size), 0);
  for (const Move& move : moves) bytes[static_cast<size_t>(move.peer)] += move.mine.volume() * element_size;
  return bytes;
}

// x and out are the buffers: blocks for the ranks one after the other, this rank's own among them.
class DirectExchange : public Transfer {
 public:
  DirectExchange(c10d::Backend& backend, const Route& route, const at::Tensor& x, const at::Tensor& out)
      : outgoing_(bytes_of(x)), incoming_(bytes_of(out)) {
    ByteCounts sent = bytes_by_peer(route, route.pushes, x.element_size());
    ByteCounts received = bytes_by_peer(route, route.pulls, x.element_size());
    work_ = backend.alltoall_base(incoming_, outgoing_, received, sent);
  }

  void finish() override { work_->wait(); }

 private:
  at::Tensor outgoing_;
  at::Tensor incoming_;
  c10::intrusive_ptr<c10d::Work> work_;
};

bool can_be_direct(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known) {
  if (route.pattern != Pattern::all_to_all || route.divisor != 1 || !known.empty()) return false;
  const auto in_x = [&](const Move& m) { return is_one_run(m.mine, route.input_shape); };
  const auto in_out = [&](const Move& m) { return is_one_run(m.mine, route.output_shape); };
  return x.is_contiguous() && out.is_contiguous() &&
         std::all_of(route.pushes.begin(), route.pushes.end(), in_x) &&
         std::all_of(route.pulls.begin(), route.pulls.end(), in_out);
}

at::Tensor joined(const std::vector<at::Tensor>& pieces, const at::TensorOptions& options) {
  if (pieces.empty()) return at::empty({0}, options);
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

class PackedExchange : public Transfer {
 public:
  PackedExchange(c10d::Backend& backend, const Route& route, const at::Tensor& x, const at::Tensor& out,
                 const KnownInputs& known)
      : arrivals_(route, x, out, known) {
    const auto bytes = x.options().dtype(at::kByte);
    ByteCounts sent(static_cast<size_t>(route.size), 0);
    ByteCounts received(static_cast<size_t>(route.size), 0);
    outgoing_ = joined(packed(route, x, known, sent), bytes);
    for (size_t i = 0; i < route.pulls.size(); ++i) {
      if (!arrivals_.buffer(i).defined()) continue;
      buffers_.push_back(bytes_of(arrivals_.buffer(i)));
      received[static_cast<size_t>(route.pulls[i].peer)] += buffers_.back().numel();
    }
    const int64_t total = std::accumulate(received.begin(), received.end(), int64_t{0});
    incoming_ = buffers_.size() == 1 ? buffers_[0] : at::empty({total}, bytes);
    work_ = backend.alltoall_base(incoming_, outgoing_, received, sent);
    arrivals_.land_known();
  }

  void finish() override {
    work_->wait();
    int64_t offset = 0;
    for (const at::Tensor& buffer : buffers_) {
      if (buffers_.size() > 1) buffer.copy_(incoming_.narrow(0, offset, buffer.numel()));
      offset += buffer.numel();
    }
    arrivals_.land_received();
  }

 private:
  static std::vector<at::Tensor> packed(const Route& route, const at::Tensor& x, const KnownInputs& known,
                                        ByteCounts& sent) {
    std::vector<at::Tensor> pieces;
    if (is_known(known, route.rank)) return pieces;
    for (const Move& push : route.pushes) {
      if (push.peer == route.rank || push.mine.volume() == 0) continue;
      pieces.push_back(bytes_of(view_of(x, push.mine).contiguous()));
      sent[static_cast<size_t>(push.peer)] += pieces.back().numel();
    }
    return pieces;
  }

  Arrivals arrivals_;
  std::vector<at::Tensor> buffers_;
  at::Tensor outgoing_;
  at::Tensor incoming_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::unique_ptr<Transfer> start_by_all_to_all(c10d::Backend& backend, const Route& route, const at::Tensor& x,
                                              const at::Tensor& out, const KnownInputs& known) {
  if (can_be_direct(route, x, out, known)) return std::make_unique<DirectExchange>(backend, route, x, out);
  return std::make_unique<PackedExchange>(backend, route, x, out, known);
}

}  // namespace shardway
