#include "transport/common/two_routes.h"

#include <ATen/core/Tensor.h>

#include <numeric>

#include "transport/memory/warm_memory.h"

namespace shardway {
namespace {

// The share that this rank has combined is in its place already and need not move.
Route without_own_moves(Route route) {
  const auto is_own = [&](const Move& move) { return move.peer == route.rank; };
  std::erase_if(route.pulls, is_own);
  std::erase_if(route.pushes, is_own);
  return route;
}

struct TwoRoutes {
  TwoRoutes(const Route& all_reduce, const at::Tensor& x, const at::Tensor& landed)
      : addend(x.reshape({-1})), sums(landed.view({-1})) {
    const Split shares{.shape = {x.numel()}, .dim = 0, .sizes = chunk_sizes(x.numel(), all_reduce.size)};
    const auto own = shares.sizes.begin() + all_reduce.rank;
    share = sums.narrow(0, std::accumulate(shares.sizes.begin(), own, int64_t{0}), *own);
    combination = reduce_scatter_route(shares, all_reduce.rank, all_reduce.op);
    combination.divisor = all_reduce.divisor;
    collection = all_gather_route(shares, all_reduce.rank);
    // A device's engine gathers in place.
    if (x.is_cpu()) collection = without_own_moves(std::move(collection));
  }

  at::Tensor addend;
  at::Tensor sums;
  at::Tensor share = {};   // of the sums: what this rank combines
  Route combination = {};  // from the addends to the share
  Route collection = {};   // from the shares to the sums
};

class Collection : public Transfer {
 public:
  Collection(std::unique_ptr<Transfer> transfer, at::Tensor landed, at::Tensor out)
      : transfer_(std::move(transfer)), landed_(std::move(landed)), out_(std::move(out)) {}

  void finish() override {
    transfer_->finish();
    if (!landed_.is_same(out_)) out_.copy_(landed_);
  }
  bool is_over() override { return transfer_->is_over(); }

 private:
  std::unique_ptr<Transfer> transfer_;
  at::Tensor landed_;
  at::Tensor out_;
};

}  // namespace

bool runs_in_two(const Route& route, const at::Tensor& x, Transport& transport) {
  return route.pattern == Pattern::all_reduce && static_cast<int64_t>(x.nbytes()) > transport.slot_bytes() &&
         !transport.has_own(route, x) && !transport.combines_whole(x);
}

std::unique_ptr<Transfer> start_in_two(Transport& transport, const Route& all_reduce, const at::Tensor& x,
                                       const at::Tensor& out, const Subject& subject) {
  const at::Tensor landed = out.is_contiguous() ? out : warm_empty(out.sizes(), out.options());
  const TwoRoutes two(all_reduce, x, landed);
  transport.start(two.combination, two.addend, two.share, {}, subject)->finish();
  return std::make_unique<Collection>(transport.start(two.collection, two.share, two.sums, {}, subject),
                                      landed, out);
}

std::unique_ptr<RepeatedMoves> repeated_in_two(RepeatsMoves& transport, const RouteCall& all_reduce) {
  const auto two = std::make_shared<const TwoRoutes>(*all_reduce.route, all_reduce.x, all_reduce.out);
  std::vector<std::unique_ptr<RepeatedMoves>> both;
  both.push_back(transport.repeat({{.route = &two->combination, .x = two->addend, .out = two->share}}));
  both.push_back(transport.repeat({{.route = &two->collection, .x = two->share, .out = two->sums}}));
  return moves_in_turn(std::move(both), two);
}

}  // namespace shardway
