#include "plan/price/loads.h"

#include <algorithm>

namespace shardway {
namespace {

// The senders that a receiver may pull from: its home, moved along the free dims of the senders' mesh.
class Sources {
 public:
  Sources(const StateExchange& exchange, const Network& network)
      : space_(exchange.senders), network_(network), free_(free_dims(exchange, network)) {
    offsets_.push_back(0);
    for (size_t m = 0; m < space_.mesh_dims(); ++m) {
      if (!has(free_, m)) continue;
      const size_t before = offsets_.size();
      for (int64_t i = 1; i < space_.mesh_shape()[m]; ++i) {
        for (size_t k = 0; k < before; ++k) offsets_.push_back(offsets_[k] + i * space_.stride(m));
      }
    }
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }

  // The home of a receiver, with the coordinates of all free dims set to 0.
  int64_t first(size_t receiver) const {
    const int64_t own = network_.own_sender(receiver);
    if (own < 0) return replica(static_cast<int64_t>(receiver));
    int64_t first = own;
    for (size_t m = 0; m < space_.mesh_dims(); ++m) {
      if (has(free_, m)) first -= space_.coordinate(m, static_cast<size_t>(own)) * space_.stride(m);
    }
    return first;
  }

 private:
  static DimMask free_dims(const StateExchange& exchange, const Network& network) {
    const DimMask sharded = network.is_one_mesh() ? exchange.senders.unsettled(exchange.from, exchange.to)
                                                  : exchange.senders.state(exchange.from).sharded;
    return sharded | exchange.resolved;
  }

  // The same replica as ExchangeRules::home_of gives.
  int64_t replica(int64_t number) const {
    int64_t position = 0;
    for (size_t m = space_.mesh_dims(); m-- > 0;) {
      if (has(free_, m)) continue;
      position += number % space_.mesh_shape()[m] * space_.stride(m);
      number /= space_.mesh_shape()[m];
    }
    return position;
  }

  const StateSpace& space_;
  const Network& network_;
  DimMask free_;
  std::vector<int64_t> offsets_;
};

}  // namespace

void Loads::reset(size_t kinds, size_t level_count) {
  levels = level_count;
  ranks.assign(kinds, 1);
  sent.assign(kinds * levels, 0);
  received.assign(kinds * levels, 0);
  sent_to.assign(kinds * levels, 0);
  received_from.assign(kinds * levels, 0);
  copied.assign(kinds, 0);
  combined.assign(kinds, 0);
}

void count_pairs(const StateExchange& exchange, const Network& network, Loads& loads) {
  const StateBoxes& there = exchange.senders.boxes(exchange.from);
  const StateBoxes& here = exchange.receivers.boxes(exchange.to);
  const Sources sources(exchange, network);
  const size_t dims = exchange.senders.shape().size();
  loads.reset(network.ranks(), network.links().size());
  for (size_t r = 0; r < here.positions; ++r) {
    if (here.volumes[r] == 0) continue;
    const int64_t first = sources.first(r);
    const int64_t own = network.own_sender(r);
    const size_t receiver = network.receiver_slot(r);
    for (const int64_t offset : sources.offsets()) {
      const auto p = static_cast<size_t>(first + offset);
      double common = 1;
      for (size_t d = 0; d < dims; ++d) {
        const double begin = std::max(there.begin_of(d)[p], here.begin_of(d)[r]);
        const double end = std::min(there.end_of(d)[p], here.end_of(d)[r]);
        common *= std::max(0.0, end - begin);
      }
      if (common == 0) continue;
      if (exchange.resolved != 0) loads.combined[receiver] += common;
      if (static_cast<int64_t>(p) == own) {
        loads.copied[receiver] += common;
        continue;
      }
      const size_t level = network.level_between(p, r);
      const size_t sender = network.sender_slot(p);
      loads.received[receiver * loads.levels + level] += common;
      loads.received_from[receiver * loads.levels + level] += 1;
      loads.sent[sender * loads.levels + level] += common;
      loads.sent_to[sender * loads.levels + level] += 1;
    }
  }
}

}  // namespace shardway
