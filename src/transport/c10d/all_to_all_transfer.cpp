#include "transport/c10d/all_to_all_transfer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "transport/c10d/aside.h"
#include "transport/common/boxes.h"
#include "transport/common/packing.h"
#include "transport/common/reduce.h"
#include "transport/common/starting_stream.h"

namespace shardway {
namespace {

using ByteCounts = std::vector<int64_t>;  // by rank

ByteCounts bytes_by_peer(const Route& route, const Moves& moves, int64_t element_size) {
  ByteCounts bytes(static_cast<size_t>(route.size), 0);
  for (const Move& move : moves) bytes[static_cast<size_t>(move.peer)] += move.mine.volume() * element_size;
  return bytes;
}

Moves without_own(Moves moves, int64_t rank) {
  std::erase_if(moves, [rank](const Move& move) { return move.peer == rank; });
  return moves;
}

class DeviceExchange : public Transfer {
 public:
  DeviceExchange(const AllToAll& all_to_all, const Route& route, const at::Tensor& x, const at::Tensor& out)
      : route_(route),
        x_(x),
        out_(out),
        started_(x),
        landings_(landings(route)),
        reduces_(reduces(landings_, route)),
        own_travels_(is_easier_with_own()),
        pulls_(own_travels_ ? route.pulls : without_own(route.pulls, route.rank)) {
    const Moves pushes = own_travels_ ? route.pushes : without_own(route.pushes, route.rank);
    outgoing_ = lies_in_order(x, pushes) ? x : packed(x, pushes);
    incoming_ = !reduces_ && lies_in_order(out, pulls_) ? out : at::empty({volume_of(pulls_)}, out.options());
    at::Tensor sent = bytes_of(outgoing_);
    at::Tensor received = bytes_of(incoming_);
    ByteCounts sent_bytes = bytes_by_peer(route, pushes, x.element_size());
    ByteCounts received_bytes = bytes_by_peer(route, pulls_, x.element_size());
    work_ = all_to_all(received, sent, received_bytes, sent_bytes);
    if (x.is_cpu()) on_cpu_.emplace([work = work_] { work->wait(); });
    if (!own_travels_ && !reduces_) land_own();
  }

  void finish() override {
    if (on_cpu_) {
      on_cpu_->wait();
    } else {
      work_->wait();
    }
    started_.lend({x_, out_, outgoing_, incoming_});
    if (reduces_) {
      combine();
    } else if (!incoming_.is_same(out_)) {
      unpack(incoming_, pulls_, out_);
    }
  }
  bool is_over() override { return on_cpu_ ? on_cpu_->is_over() : work_->isCompleted(); }

 private:
  // Whether this rank's boxes for itself travel too. Usually they are copied straight to their place. They
  // travel if a tensor can serve as a buffer only as a whole, or if one kernel packs and one unpacks the
  // whole tensor.
  bool is_easier_with_own() const {
    const bool can_unpack_whole = !reduces_ && split_dim(route_.pulls, route_.output_shape).has_value();
    return lies_in_order(x_, route_.pushes) || (!reduces_ && lies_in_order(out_, route_.pulls)) ||
           (can_unpack_whole && split_dim(route_.pushes, route_.input_shape).has_value());
  }

  void land_own() {
    for (const Move& pull : route_.pulls) {
      if (pull.peer == route_.rank) view_of(out_, pull.mine).copy_(view_of(x_, pull.theirs));
    }
  }

  void combine() {
    const std::vector<at::Tensor> received = parts_of(incoming_, pulls_);
    std::vector<at::Tensor> arrived;  // by pull of the route
    size_t next = 0;
    for (const Move& pull : route_.pulls) {
      const bool is_here = !own_travels_ && pull.peer == route_.rank;
      arrived.push_back(is_here ? view_of(x_, pull.theirs) : received[next++]);
    }
    for (const Landing& landing : landings_) {
      std::vector<at::Tensor> addends;
      for (const Addend& addend : landing.addends)
        addends.push_back(view_of(arrived[static_cast<size_t>(addend.pull)], addend.from));
      reduce_into(view_of(out_, landing.box), addends, route_.op, route_.divisor);
    }
  }

  Route route_;
  at::Tensor x_;
  at::Tensor out_;
  StartingStream started_;
  std::vector<Landing> landings_;
  bool reduces_;
  bool own_travels_;
  Moves pulls_;  // those that are received
  at::Tensor outgoing_;
  at::Tensor incoming_;
  c10::intrusive_ptr<c10d::Work> work_;
  std::optional<Aside> on_cpu_;  // an engine written in Python may not tell when its work is done
};

}  // namespace

std::unique_ptr<Transfer> start_by_all_to_all(const AllToAll& all_to_all, const Route& route,
                                              const at::Tensor& x, const at::Tensor& out) {
  return std::make_unique<DeviceExchange>(all_to_all, route, x, out);
}

}  // namespace shardway
