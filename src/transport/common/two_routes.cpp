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
         !transport.has_own(route, x);
}

std::unique_ptr<Transfer> start_in_two(Transport& transport, const Route& all_reduce, const at::Tensor& x,
                                       const at::Tensor& out, const Subject& subject) {
  const at::Tensor landed = out.is_contiguous() ? out : warm_empty(out.sizes(), out.options());
  const at::Tensor elements = landed.view({-1});
  const Split shares{.shape = {x.numel()}, .dim = 0, .sizes = chunk_sizes(x.numel(), all_reduce.size)};
  const auto own = shares.sizes.begin() + all_reduce.rank;
  const at::Tensor share = elements.narrow(0, std::accumulate(shares.sizes.begin(), own, int64_t{0}), *own);

  Route combination = reduce_scatter_route(shares, all_reduce.rank, all_reduce.op);
  combination.divisor = all_reduce.divisor;
  transport.start(combination, x.reshape({-1}), share, {}, subject)->finish();
  Route collection = all_gather_route(shares, all_reduce.rank);
  // A device's engine gathers in place.
  if (x.is_cpu()) collection = without_own_moves(std::move(collection));
  return std::make_unique<Collection>(transport.start(collection, share, elements, {}, subject), landed, out);
}

}  // namespace shardway
