#include "transport/common/arrivals.h"

#include <ATen/core/Tensor.h>

#include "transport/common/boxes.h"
#include "transport/common/reduce.h"
#include "transport/memory/warm_memory.h"

namespace shardway {

Arrivals::Arrivals(const Route& route, const at::Tensor& x, const at::Tensor& out, const KnownInputs& known)
    : route_(route), out_(out), landings_(landings(route)) {
  reduces_ = reduces(landings_, route);
  const size_t count = route.pulls.size();
  here_.resize(count);
  buffers_.resize(count);
  in_place_.resize(count, false);
  for (size_t i = 0; i < count; ++i) {
    const Move& pull = route.pulls[i];
    if (pull.mine.volume() == 0) continue;
    if (pull.peer == route.rank) {
      here_[i] = view_of(x, pull.theirs);
    } else if (is_known(known, pull.peer)) {
      here_[i] = view_of(known[static_cast<size_t>(pull.peer)], pull.theirs);
    } else {
      const at::Tensor place = view_of(out, pull.mine);
      in_place_[i] = !reduces_ && place.is_contiguous();
      buffers_[i] = in_place_[i] ? place : warm_empty(pull.mine.extent, out.options());
    }
  }
}

void Arrivals::land_known() {
  if (reduces_) return;
  for (size_t i = 0; i < here_.size(); ++i) {
    if (here_[i].defined()) view_of(out_, route_.pulls[i].mine).copy_(here_[i]);
  }
}

at::Tensor Arrivals::arrived(size_t pull) const {
  return here_[pull].defined() ? here_[pull] : buffers_[pull];
}

void Arrivals::land_received() {
  if (!reduces_) {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].defined() && !in_place_[i]) view_of(out_, route_.pulls[i].mine).copy_(buffers_[i]);
    }
    return;
  }
  for (const Landing& landing : landings_) {
    std::vector<at::Tensor> addends;
    addends.reserve(landing.addends.size());
    for (const Addend& addend : landing.addends) {
      addends.push_back(view_of(arrived(static_cast<size_t>(addend.pull)), addend.from));
    }
    reduce_into(view_of(out_, landing.box), addends, route_.op, route_.divisor);
  }
}

}  // namespace shardway
