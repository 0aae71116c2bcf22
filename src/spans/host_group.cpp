// Implements shardway/shm.h: on SharedGroup if all ranks share a host, else in two levels.
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>

#include "plan/hosts/hosts_all_reduce.h"
#include "shardway/shm.h"
#include "shm/calls/all_reduce.h"
#include "shm/group/join_world.h"
#include "shm/group/tune.h"
#include "shm/group/world.h"
#include "spans/measured_tuning.h"
#include "spans/two_level_spans.h"

namespace shardway {
namespace {

[[maybe_unused]] const bool kTunedByTopologyFile = (shm::ask_for_measured_pins(&pins_of_topology_file), true);

int64_t total_of(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

[[noreturn]] void refuse(const char* name, const std::string& why) {
  throw std::invalid_argument(name + (" " + why));
}

void check_sizes(const char* name, std::span<const int64_t> sizes, int64_t ranks, size_t total) {
  if (static_cast<int64_t>(sizes.size()) != ranks)
    refuse(name, "has " + std::to_string(sizes.size()) + " entries for " + std::to_string(ranks) + " ranks");
  for (const int64_t size : sizes) {
    if (size < 0) refuse(name, "has the negative " + std::to_string(size));
  }
  if (total_of(sizes) != static_cast<int64_t>(total))
    refuse(name, "add up to " + std::to_string(total_of(sizes)) + ", but the memory has " +
                     std::to_string(total) + " elements");
}

shm::ContiguousCall flat_of(const void* input, size_t count, void* output, size_t element_bytes) {
  const auto element = static_cast<int64_t>(element_bytes);
  return {.element_bytes = element,
          .input = static_cast<const std::byte*>(input),
          .input_bytes = static_cast<int64_t>(count) * element,
          .output = static_cast<std::byte*>(output)};
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

shm::Combine combine_of(Number number, Combination how, int64_t ranks) {
  const shm::Element element = element_of(number);
  require(shm::is_defined(element, reduction_of(how)), "these numbers cannot be combined so");
  return {.element = element, .op = reduction_of(how), .divisor = how == Combination::avg ? ranks : 1};
}

// What a call is about: its name, and the numbers that all ranks must give alike. It must outlive the
// subjects that it makes: their words refer to it, and take no memory of their own.
class About {
 public:
  constexpr About(const char* name, uint64_t mark) : name_(name), mark_(mark) {}

  About& add(int64_t number) {
    mark_ = shm::mark_of(mark_, static_cast<uint64_t>(number));
    return *this;
  }

  About& add(std::span<const int64_t> sizes) {
    sizes_ = sizes;
    for (const int64_t size : sizes) add(size);
    return *this;
  }

  shm::Subject subject() const {
    return {.mark = mark_, .name = name_, .words = [this] { return words(); }};
  }

 private:
  std::string words() const {
    std::string words = name_;
    for (size_t i = 0; i < sizes_.size(); ++i)
      words += (i == 0 ? " of sizes " : ", ") + std::to_string(sizes_[i]);
    return words;
  }

  const char* name_;
  uint64_t mark_;
  std::span<const int64_t> sizes_ = {};
};

constexpr About kGather("all_gather_v", shm::mark_of("all_gather_v"));
constexpr About kReduce("reduce_scatter_v", shm::mark_of("reduce_scatter_v"));
constexpr About kReduceAll("all_reduce", shm::mark_of("all_reduce"));
constexpr About kSendToAll("broadcast", shm::mark_of("broadcast"));
constexpr About kExchange("all_to_all_v", shm::mark_of("all_to_all_v"));

Split split_of(std::span<const int64_t> sizes) {
  return {.shape = {0}, .dim = 0, .sizes = {sizes.begin(), sizes.end()}};
}

SpanMemory memory_of(const void* input, void* output, size_t element_bytes) {
  return {.input = static_cast<const std::byte*>(input),
          .output = static_cast<std::byte*>(output),
          .element_bytes = static_cast<int64_t>(element_bytes)};
}

SpanMemory memory_of(const void* input, void* output, const shm::Combine& combine) {
  SpanMemory memory = memory_of(input, output, static_cast<size_t>(shm::bytes_of(combine.element)));
  memory.combine = combine;
  return memory;
}

// What a rank has is in its place already, and need not move.
Route without_own_moves(Route route) {
  const auto is_own = [&](const Move& move) { return move.peer == route.rank; };
  std::erase_if(route.pulls, is_own);
  std::erase_if(route.pushes, is_own);
  return route;
}

// Each rank combines a share, and then collects the others'.
void reduce_all_in_two(TwoLevelSpans& hosts, const void* x, void* all, size_t count,
                       const shm::Combine& combine, const shm::Subject& subject) {
  const int64_t element_bytes = shm::bytes_of(combine.element);
  const auto routes_of = [&](int64_t rank) {
    const ReducedRun run{
        .elements = static_cast<int64_t>(count), .element_bytes = element_bytes, .sum_bytes = element_bytes};
    return all_reduce_routes(run, rank, hosts.hosts());
  };
  std::byte* share = static_cast<std::byte*>(all) + routes_of(hosts.rank()).landing.offset[0] * element_bytes;
  const TwoLevelSpans::Leg combination{.route_of = [&](int64_t rank) { return routes_of(rank).combination; },
                                       .memory = memory_of(x, share, combine)};
  const TwoLevelSpans::Leg collection{.route_of = [&](int64_t rank) { return routes_of(rank).collection; },
                                      .memory = memory_of(share, all, static_cast<size_t>(element_bytes))};
  hosts.run({combination, collection}, subject);
}

}  // namespace

// Either `group` or `hosts` is set.
struct HostGroup::State {
  std::shared_ptr<shm::SharedGroup> group = nullptr;
  std::shared_ptr<TwoLevelSpans> hosts = nullptr;

  static std::shared_ptr<State> of(shm::World world, std::chrono::milliseconds timeout) {
    if (world.group) return std::make_shared<State>(State{.group = std::move(world.group)});
    if (!world.engine) throw std::runtime_error("join: the ranks share no memory: " + world.why_not);
    return std::make_shared<State>(State{
        .hosts = std::make_shared<TwoLevelSpans>(std::move(world.hosts), std::move(world.engine), timeout)});
  }
};

HostGroup::HostGroup(std::shared_ptr<State> state) : state_(std::move(state)) {}

HostGroup HostGroup::join(const JoinOptions& options) {
  return HostGroup(State::of(shm::join_world(options), options.timeout));
}

HostGroup HostGroup::join_hosts(const EngineMaker& make, std::chrono::milliseconds timeout) {
  return HostGroup(State::of(shm::join_world(make, timeout), timeout));
}

HostGroup HostGroup::split(int64_t color, int64_t key) const {
  const auto exchange = [this](std::span<const std::byte> mine) {
    const auto bytes = static_cast<int64_t>(mine.size());
    std::vector<std::byte> all(mine.size() * static_cast<size_t>(size()));
    all_gather_v<std::byte>(mine, all, std::vector(static_cast<size_t>(size()), bytes));
    return all;
  };
  const auto timeout = state_->hosts ? state_->hosts->timeout() : state_->group->timeout();
  const shm::Whole whole{.rank = rank(), .size = size(), .exchange = exchange, .timeout = timeout};
  return HostGroup(std::make_shared<State>(State{.group = shm::split(whole, color, key).group}));
}

HostGroup HostGroup::shrink(std::optional<std::chrono::milliseconds> timeout) const {
  require(state_->group != nullptr, "shrink: the ranks are on several hosts");
  return HostGroup(std::make_shared<State>(State{.group = state_->group->shrink(timeout).group}));
}

int64_t HostGroup::rank() const { return state_->hosts ? state_->hosts->rank() : state_->group->rank(); }
int64_t HostGroup::size() const { return state_->hosts ? state_->hosts->size() : state_->group->size(); }

std::shared_ptr<void> HostGroup::allocate_bytes(int64_t bytes) const {
  const auto arena = state_->group ? state_->group->arena() : shm::Arena::of_process();
  return {arena->allocate(bytes), [arena](void* block) { arena->free(static_cast<std::byte*>(block)); }};
}

void HostGroup::gather(From mine, To all, Sizes sizes, size_t element_bytes) const {
  check_sizes("sizes", sizes, size(), all.count);
  const auto own = static_cast<size_t>(rank());
  require(sizes[own] == static_cast<int64_t>(mine.count),
          "sizes do not have this rank's own size at its place");
  About about = kGather;
  about.add(static_cast<int64_t>(element_bytes)).add(sizes);
  if (state_->hosts) {
    const Split split = split_of(sizes);
    const auto route_of = [&](int64_t rank) { return all_gather_route(split, rank); };
    return state_->hosts->run(route_of, memory_of(mine.data, all.data, element_bytes), about.subject());
  }
  shm::ContiguousCall call = flat_of(mine.data, mine.count, all.data, element_bytes);
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    const int64_t bytes = size * call.element_bytes;
    call.sends.push_back({.begin = 0, .bytes = call.input_bytes});
    call.takes.push_back({.from = 0, .to = begin, .bytes = bytes});
    begin += bytes;
  }
  state_->group->run(call, about.subject());
}

void HostGroup::reduce(From x, To mine, Sizes sizes, Number number, Combination how) const {
  check_sizes("sizes", sizes, size(), x.count);
  const auto own = static_cast<size_t>(rank());
  require(sizes[own] == static_cast<int64_t>(mine.count),
          "sizes do not have this rank's own size at its place");
  const shm::Combine combine = combine_of(number, how, size());
  About about = kReduce;
  about.add(static_cast<int64_t>(number)).add(static_cast<int64_t>(how)).add(sizes);
  if (state_->hosts) {
    const Split split = split_of(sizes);
    const auto route_of = [&](int64_t rank) { return reduce_scatter_route(split, rank); };
    return state_->hosts->run(route_of, memory_of(x.data, mine.data, combine), about.subject());
  }
  shm::ContiguousCall call =
      flat_of(x.data, x.count, mine.data, static_cast<size_t>(shm::bytes_of(combine.element)));
  call.combine = combine;
  const int64_t own_begin = total_of(sizes.first(own)) * call.element_bytes;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    const int64_t bytes = size * call.element_bytes;
    call.sends.push_back({.begin = begin, .bytes = bytes});
    call.takes.push_back({.from = own_begin, .to = 0, .bytes = sizes[own] * call.element_bytes});
    begin += bytes;
  }
  state_->group->run(call, about.subject());
}

void HostGroup::reduce_all(From x, To all, Number number, Combination how) const {
  const shm::Combine combine = combine_of(number, how, size());
  require(x.count == all.count, "input and output differ in their number of elements");
  const int64_t bytes = static_cast<int64_t>(x.count) * shm::bytes_of(combine.element);
  About about = kReduceAll;
  about.add(static_cast<int64_t>(number)).add(static_cast<int64_t>(how)).add(bytes);
  if (state_->hosts)
    return reduce_all_in_two(*state_->hosts, x.data, all.data, x.count, combine, about.subject());
  state_->group->run(shm::AllReduce{.input = static_cast<const std::byte*>(x.data),
                                    .output = static_cast<std::byte*>(all.data),
                                    .bytes = bytes,
                                    .how = combine},
                     about.subject());
}

void HostGroup::send_to_all(To memory, int64_t root, size_t element_bytes) const {
  require(root >= 0 && root < size(), "the root is not among the ranks");
  const bool is_root = rank() == root;
  const auto bytes = static_cast<int64_t>(memory.count * element_bytes);
  About about = kSendToAll;
  about.add(root).add(bytes);
  if (state_->hosts) {
    const auto route_of = [&](int64_t rank) {
      return without_own_moves(broadcast_route({bytes}, rank, size(), root));
    };
    return state_->hosts->run(route_of, memory_of(memory.data, memory.data, 1), about.subject());
  }
  shm::ContiguousCall call = flat_of(memory.data, is_root ? memory.count : 0, memory.data, element_bytes);
  for (int64_t peer = 0; peer < size(); ++peer) {
    call.sends.push_back({.begin = 0, .bytes = is_root && peer != root ? bytes : 0});
    call.takes.push_back({.from = 0, .to = 0, .bytes = !is_root && peer == root ? bytes : 0});
  }
  state_->group->run(call, about.subject());
}

void HostGroup::barrier() const {
  const auto words = [] { return std::string("a barrier"); };
  if (state_->hosts)
    return state_->hosts->meet({.mark = shm::mark_of("barrier"), .name = "barrier", .words = words});
  state_->group->barrier();
}

void HostGroup::exchange(From x, Sizes send_sizes, To received, Sizes recv_sizes,
                         size_t element_bytes) const {
  check_sizes("send_sizes", send_sizes, size(), x.count);
  check_sizes("recv_sizes", recv_sizes, size(), received.count);
  const auto own = static_cast<size_t>(rank());
  require(send_sizes[own] == recv_sizes[own], "recv_sizes do not have what this rank sends to itself");
  About about = kExchange;
  about.add(static_cast<int64_t>(element_bytes));
  if (state_->hosts) {
    const AllToAllSizes sizes{.send = {send_sizes.begin(), send_sizes.end()},
                              .recv = {recv_sizes.begin(), recv_sizes.end()}};
    return state_->hosts->run_all_to_all(sizes, memory_of(x.data, received.data, element_bytes),
                                         about.subject());
  }
  shm::ContiguousCall call = flat_of(x.data, x.count, received.data, element_bytes);
  int64_t sent = 0;
  int64_t landed = 0;
  for (size_t peer = 0; peer < send_sizes.size(); ++peer) {
    const shm::ContiguousCall::Send send{.begin = sent, .bytes = send_sizes[peer] * call.element_bytes};
    const int64_t bytes = recv_sizes[peer] * call.element_bytes;
    call.sends.push_back(send);
    call.takes.push_back({.from = peer == own ? sent : shm::kUnknown, .to = landed, .bytes = bytes});
    sent += send.bytes;
    landed += bytes;
  }
  state_->group->run(call, about.subject());
}

}  // namespace shardway
