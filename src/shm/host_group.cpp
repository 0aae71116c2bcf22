// shardway/shm.h over Group.
#include <numeric>
#include <stdexcept>
#include <string>

#include "shardway/shm.h"
#include "shm/group.h"

namespace shardway {
namespace {

using shm::one_dim;

int64_t total_of(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

void check_sizes(const char* name, std::span<const int64_t> sizes, int64_t ranks, size_t total) {
  require(static_cast<int64_t>(sizes.size()) == ranks, std::string(name) + " has " +
                                                           std::to_string(sizes.size()) + " entries for " +
                                                           std::to_string(ranks) + " ranks");
  for (const int64_t size : sizes)
    require(size >= 0, std::string(name) + " has the negative " + std::to_string(size));
  require(total_of(sizes) == static_cast<int64_t>(total),
          std::string(name) + " add up to " + std::to_string(total_of(sizes)) + ", but the memory has " +
              std::to_string(total) + " elements");
}

shm::Part part_of(const void* input, size_t count, void* output, int64_t element_bytes) {
  shm::Part part{.element_bytes = element_bytes};
  part.input = {.data = static_cast<const std::byte*>(input),
                .shape = one_dim(static_cast<int64_t>(count)),
                .strides = one_dim(element_bytes)};
  part.output = static_cast<std::byte*>(output);
  part.output_strides = one_dim(element_bytes);
  return part;
}

shm::Element element_of(Number number) {
  using shm::Element;
  constexpr std::array kElements = {Element::u8,  Element::u16, Element::u32,       Element::u64,
                                    Element::i8,  Element::i16, Element::i32,       Element::i64,
                                    Element::f32, Element::f64, Element::complex64, Element::complex128};
  return kElements.at(static_cast<size_t>(number));
}

shm::Reduction reduction_of(Combination how) {
  using shm::Reduction;
  constexpr std::array kReductions = {Reduction::sum,     Reduction::sum,  Reduction::min, Reduction::max,
                                      Reduction::product, Reduction::band, Reduction::bor, Reduction::bxor};
  return kReductions.at(static_cast<size_t>(how));
}

}  // namespace

struct HostGroup::State {
  std::shared_ptr<shm::Group> group;
};

HostGroup::HostGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}

HostGroup HostGroup::join(const HostGroupOptions& options) {
  shm::Joined joined = shm::Group::join(
      {.rank = options.rank, .size = options.size, .exchange = options.exchange, .timeout = options.timeout});
  if (!joined.group) throw std::runtime_error("the ranks share no memory: " + joined.why_not);
  return HostGroup(std::make_shared<State>(State{.group = std::move(joined.group)}));
}

int64_t HostGroup::rank() const { return state_->group->rank(); }
int64_t HostGroup::size() const { return state_->group->size(); }

std::shared_ptr<void> HostGroup::allocate_bytes(int64_t bytes) const {
  const auto arena = state_->group->arena();
  return {arena->allocate(bytes), [arena](void* block) { arena->free(static_cast<std::byte*>(block)); }};
}

void HostGroup::gather(From mine, To all, Sizes sizes, size_t element_bytes) const {
  check_sizes("sizes", sizes, size(), all.count);
  const auto own = static_cast<size_t>(rank());
  require(sizes[own] == static_cast<int64_t>(mine.count),
          "sizes do not have this rank's own size at its place");
  shm::Part part = part_of(mine.data, mine.count, all.data, static_cast<int64_t>(element_bytes));
  int64_t begin = 0;
  for (int64_t peer = 0; peer < size(); ++peer) {
    const int64_t count = sizes[static_cast<size_t>(peer)];
    part.pushes.push_back({.peer = peer, .from = one_dim(0), .extent = one_dim(sizes[own])});
    part.pulls.push_back({.peer = peer, .from = one_dim(0), .to = one_dim(begin), .extent = one_dim(count)});
    begin += count;
  }
  part.pulls[own].here = &part.input;
  state_->group->run(part);
}

void HostGroup::reduce(From x, To mine, Sizes sizes, Number number, Combination how) const {
  check_sizes("sizes", sizes, size(), x.count);
  const auto own = static_cast<size_t>(rank());
  require(sizes[own] == static_cast<int64_t>(mine.count),
          "sizes do not have this rank's own size at its place");
  const shm::Element element = element_of(number);
  require(shm::is_defined(element, reduction_of(how)), "these numbers cannot be combined so");
  shm::Part part = part_of(x.data, x.count, mine.data, shm::bytes_of(element));
  part.is_reduce_scatter = true;
  part.combine = shm::Combine{
      .element = element, .op = reduction_of(how), .divisor = how == Combination::avg ? size() : 1};
  const int64_t own_begin = total_of(sizes.first(own));
  int64_t begin = 0;
  shm::Landing landing{.to = one_dim(0), .extent = one_dim(sizes[own]), .addends = {}};
  for (int64_t peer = 0; peer < size(); ++peer) {
    const int64_t count = sizes[static_cast<size_t>(peer)];
    part.pushes.push_back({.peer = peer, .from = one_dim(begin), .extent = one_dim(count)});
    part.pulls.push_back(
        {.peer = peer, .from = one_dim(own_begin), .to = one_dim(0), .extent = one_dim(sizes[own])});
    landing.addends.push_back({.pull = peer, .from = one_dim(0)});
    begin += count;
  }
  part.pulls[own].here = &part.input;
  if (sizes[own] > 0) part.landings.push_back(std::move(landing));
  state_->group->run(part);
}

void HostGroup::exchange(From x, Sizes send_sizes, To received, Sizes recv_sizes,
                         size_t element_bytes) const {
  check_sizes("send_sizes", send_sizes, size(), x.count);
  check_sizes("recv_sizes", recv_sizes, size(), received.count);
  const auto own = static_cast<size_t>(rank());
  require(send_sizes[own] == recv_sizes[own], "recv_sizes do not have what this rank sends to itself");
  shm::Part part = part_of(x.data, x.count, received.data, static_cast<int64_t>(element_bytes));
  int64_t sent = 0;
  int64_t landed = 0;
  for (int64_t peer = 0; peer < size(); ++peer) {
    const auto p = static_cast<size_t>(peer);
    const bool is_own = p == own;
    part.pushes.push_back({.peer = peer, .from = one_dim(sent), .extent = one_dim(send_sizes[p])});
    part.pulls.push_back({.peer = peer,
                          .from = one_dim(is_own ? sent : shm::kUnknown),
                          .to = one_dim(landed),
                          .extent = one_dim(recv_sizes[p]),
                          .here = is_own ? &part.input : nullptr});
    sent += send_sizes[p];
    landed += recv_sizes[p];
  }
  state_->group->run(part);
}

}  // namespace shardway
