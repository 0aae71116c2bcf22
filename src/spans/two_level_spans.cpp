#include "spans/two_level_spans.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "shm/calls/contiguous.h"
#include "shm/calls/part.h"
#include "shm/kernels/copy.h"
#include "terms/block.h"
#include "terms/comparison.h"

namespace shardway {
namespace {

constexpr uint64_t kBlocks = shm::mark_of("blocks of hosts");

// What a rank says of its call: a block with a hash of what the call is about, and that in words.
struct alignas(wire::BlockHeader) SpanBlock {
  std::array<uint8_t, 256> bytes = {};
};

SpanBlock block_of(const shm::Subject& subject, int64_t ranks) {
  SpanBlock written;
  const std::string words = subject.words ? subject.words() : subject.name;
  const wire::CallHash hash = {subject.mark, 0};
  wire::Draft draft{.hash = &hash};
  draft.header.collective = static_cast<uint8_t>(Collective::dist_barrier);  // the words say which it is
  draft.header.has_tensor = 0;
  const auto room = written.bytes.size() - static_cast<size_t>(wire::bytes_of(draft, ranks));
  draft.text = std::string_view(words).substr(0, room);
  wire::write(draft, ranks, written.bytes.data());
  return written;
}

void compare_blocks(std::vector<SpanBlock>& blocks) {
  const wire::BlockRows rows(blocks[0].bytes.data(), sizeof(SpanBlock), static_cast<int64_t>(blocks.size()));
  const std::vector<int64_t> bytes(blocks.size(), int64_t{sizeof(SpanBlock)});
  const std::string why = wire::why_no_blocks(rows, bytes, wire::Slot::words, /*kinds=*/{});
  if (!why.empty()) throw std::runtime_error(why);
  for (int64_t rank = 0; rank < rows.size(); ++rank) {
    if (!rows.header(rank).has_hash)
      throw std::runtime_error("rank " + std::to_string(rank) +
                               " sent no header: it does not say what its call is about");
  }
  const std::string sentence = wire::disagreement_on_calls(rows);
  if (!sentence.empty()) throw shm::Disagreement(sentence);
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

bool is_empty(const Move& move) { return move.mine.volume() == 0; }

shm::Input input_of(const std::byte* data, int64_t elements, int64_t element_bytes) {
  return {.data = data, .shape = shm::one_dim(elements), .strides = shm::one_dim(element_bytes)};
}

// The moves of a route inside a host, whose shapes have one dim.
shm::Part part_of(const Route& route, const shm::Input& input, std::byte* output, int64_t element_bytes) {
  shm::Part part{.element_bytes = element_bytes,
                 .input = input,
                 .output = output,
                 .output_strides = shm::one_dim(element_bytes)};
  for (const Move& pull : route.pulls) {
    part.pulls.push_back({.peer = pull.peer,
                          .from = pull.theirs.offset,
                          .to = pull.mine.offset,
                          .extent = pull.mine.extent,
                          .here = pull.peer == route.rank ? &input : nullptr});
  }
  for (const Move& push : route.pushes)
    part.pushes.push_back({.peer = push.peer, .from = push.mine.offset, .extent = push.mine.extent});
  return part;
}

void add_landings(shm::Part& part, const Route& route, const shm::Combine& how) {
  part.combine = how;
  for (const Landing& landing : landings(route)) {
    shm::PartLanding& added = part.landings.emplace_back(
        shm::PartLanding{.to = landing.box.offset, .extent = landing.box.extent, .addends = {}});
    for (const Addend& addend : landing.addends)
      added.addends.push_back({.pull = addend.pull, .from = addend.from.offset});
  }
}

}  // namespace

TwoLevelSpans::TwoLevelSpans(shm::HostGroups groups, std::shared_ptr<MessageEngine> engine,
                             std::chrono::milliseconds timeout)
    : hosts_(groups.labels),
      own_(std::move(groups.own)),
      courier_(std::move(engine), timeout),
      mates_(hosts_.ranks_of(hosts_.host_of(courier_.rank()))) {
  if (own_) own_->set_idle_work([this] { courier_.keep_moving(); });
}

// The group of the host may outlive this.
TwoLevelSpans::~TwoLevelSpans() {
  if (own_) own_->set_idle_work(nullptr);
}

void TwoLevelSpans::guarded(const std::function<void()>& body) {
  const auto leave_host = [this] {
    if (own_) own_->abort();
  };
  try {
    body();
  } catch (const shm::Disagreement&) {  // the same on every rank: the group goes on
    throw;
  } catch (const shm::PeerLost&) {  // told between the hosts already
    leave_host();
    throw;
  } catch (const std::exception& error) {
    courier_.give_up(rank(), error.what());
    leave_host();
    throw;
  }
}

void TwoLevelSpans::inside(const std::function<void()>& body) {
  try {
    body();
  } catch (const shm::PeerLost& lost) {
    const auto place = static_cast<size_t>(lost.peer());
    throw courier_.give_up(mates_[place], lost.why().empty() ? lost.what() : lost.why());
  }
}

void TwoLevelSpans::finish(Errands& errands) {
  const auto wait = [&] {
    for (; !errands.empty(); errands.pop_front()) errands.front().wait();
  };
  if (!own_) return wait();
  const auto shown = own_->wait_elsewhere();
  wait();
}

void TwoLevelSpans::meet(const shm::Subject& subject) {
  guarded([&] { compare(subject); });
}

void TwoLevelSpans::run(const RouteOf& route_of, const SpanMemory& memory, const shm::Subject& subject) {
  run({{.route_of = route_of, .memory = memory}}, subject);
}

void TwoLevelSpans::run(const std::vector<Leg>& legs, const shm::Subject& subject) {
  guarded([&] {
    compare(subject);
    for (const Leg& leg : legs) move(leg.route_of, leg.memory, subject);
  });
}

void TwoLevelSpans::run_all_to_all(const AllToAllSizes& sizes, const SpanMemory& memory,
                                   const shm::Subject& subject) {
  guarded([&] {
    compare(subject);
    std::vector<int64_t> mine(sizes.send);
    mine.insert(mine.end(), sizes.recv.begin(), sizes.recv.end());
    const auto bytes = std::as_bytes(std::span(mine));
    const std::vector<std::byte> all =
        gathered(bytes, std::vector(mates_.size(), static_cast<int64_t>(bytes.size())));
    const auto route_of = [&](int64_t rank) {
      std::vector<int64_t> told(mine.size());
      std::memcpy(told.data(), all.data() + static_cast<size_t>(hosts_.place_of(rank)) * bytes.size(),
                  bytes.size());
      const auto half = told.begin() + size();
      const AllToAllSizes theirs{.send = {told.begin(), half}, .recv = {half, told.end()}};
      return all_to_all_route({0}, 0, theirs, rank);
    };
    move(route_of, memory, subject);
  });
}

// Every rank's block goes to one rank of each other host, and from there through the memory of the host.
void TwoLevelSpans::compare(const shm::Subject& subject) {
  const CallOfCourier call = courier_.open(kBlocks);
  const int64_t host = hosts_.host_of(rank());
  const int64_t place = hosts_.place_of(rank());
  const std::vector<int64_t> carried = hosts_.carried_by(host, place);
  std::vector<SpanBlock> blocks(1 + carried.size());  // this rank's, then those that come here
  blocks[0] = block_of(subject, size());
  Errands errands;
  for (size_t i = 0; i < carried.size(); ++i)
    errands.push_back(courier_.receive(call, bytes_of(blocks[i + 1]), carried[i]));
  for (int64_t step = 1; step < hosts_.hosts(); ++step) {
    const auto& there = hosts_.ranks_of((host + step) % hosts_.hosts());
    const int64_t to = there[static_cast<size_t>(place) % there.size()];
    errands.push_back(courier_.send(call, bytes_of(blocks[0]), to));
  }
  finish(errands);

  std::vector<int64_t> sizes;
  for (size_t mate = 0; mate < mates_.size(); ++mate) {
    const size_t count = 1 + hosts_.carried_by(host, static_cast<int64_t>(mate)).size();
    sizes.push_back(static_cast<int64_t>(count * sizeof(SpanBlock)));
  }
  const std::vector<std::byte> here = gathered(std::as_bytes(std::span(blocks)), sizes);
  std::vector<SpanBlock> all(static_cast<size_t>(size()));
  const std::byte* next = here.data();
  const auto put = [&](int64_t rank) {
    std::memcpy(&all[static_cast<size_t>(rank)], next, sizeof(SpanBlock));
    next += sizeof(SpanBlock);
  };
  for (size_t mate = 0; mate < mates_.size(); ++mate) {
    put(mates_[mate]);
    for (const int64_t rank : hosts_.carried_by(host, static_cast<int64_t>(mate))) put(rank);
  }
  compare_blocks(all);
}

// The blocks of the ranks of this host; `sizes` in bytes, by place.
std::vector<std::byte> TwoLevelSpans::gathered(std::span<const std::byte> mine,
                                               const std::vector<int64_t>& sizes) {
  if (!own_) return {mine.begin(), mine.end()};
  shm::ContiguousCall call{.input = mine.data(), .input_bytes = static_cast<int64_t>(mine.size())};
  int64_t begin = 0;
  for (const int64_t bytes : sizes) {
    call.sends.push_back({.begin = 0, .bytes = call.input_bytes});
    call.takes.push_back({.from = 0, .to = begin, .bytes = bytes});
    begin += bytes;
  }
  std::vector<std::byte> all(static_cast<size_t>(begin));
  call.output = all.data();
  inside([&] { own_->run(call, {.mark = kBlocks, .name = "meeting"}); });
  return all;
}

// One route, from the first message to the last copy: as TwoLevelRun does it for tensors.
class TwoLevelSpans::Run {
 public:
  Run(TwoLevelSpans& group, const TwoLevels& plan, const SpanMemory& memory, const shm::Subject& subject)
      : group_(group), plan_(plan), memory_(memory), subject_(subject) {
    if (plan.stages_input) throw std::logic_error("a span was to be packed");
    landed_ = plan.lands_aside ? group.aside_.of(bytes(plan.landed_elements)) : memory.output;
    sums_ = group.sums_.of(bytes(plan.sums.output_shape[0]));
    crossed_ = group.crossed_.of(bytes(plan.crossing.output_shape[0]));
  }

  void run() {
    auto copies = cross(plan_.copies, memory_.input, landed_);
    if (plan_.has_sums) run_inside(plan_.sums, memory_.input, sums_, memory_.combine);
    auto crossing = cross(plan_.crossing, sums_, crossed_);
    if (plan_.has_home) run_inside(plan_.home, memory_.input, memory_.output, std::nullopt);
    group_.finish(copies);
    if (plan_.has_handover) run_inside(plan_.handover, landed_, landed_, std::nullopt);
    group_.finish(crossing);
    land();
  }

 private:
  size_t bytes(int64_t elements) const { return static_cast<size_t>(elements * memory_.element_bytes); }

  Errands cross(const Route& route, const std::byte* from, std::byte* to) {
    const CallOfCourier call = group_.courier_.open(subject_.mark);
    Errands errands;
    for (const Move& pull : route.pulls) {
      if (is_empty(pull)) continue;
      const std::span room(to + bytes(pull.mine.offset[0]), bytes(pull.mine.extent[0]));
      errands.push_back(group_.courier_.receive(call, room, pull.peer));
    }
    for (const Move& push : route.pushes) {
      if (is_empty(push)) continue;
      const std::span run(from + bytes(push.mine.offset[0]), bytes(push.mine.extent[0]));
      errands.push_back(group_.courier_.send(call, run, push.peer));
    }
    return errands;
  }

  void run_inside(const Route& route, const std::byte* from, std::byte* to,
                  std::optional<shm::Combine> combine) {
    if (!group_.own_) return copy_own(route, from, to);
    const shm::Input input = input_of(from, route.input_shape[0], memory_.element_bytes);
    shm::Part part = part_of(route, input, to, memory_.element_bytes);
    if (combine) {
      combine->divisor = 1;  // the last combination divides
      add_landings(part, route, *combine);
    }
    group_.inside([&] { group_.own_->run(part, subject_); });
  }

  // The moves of a rank without others to itself: nothing meets.
  void copy_own(const Route& route, const std::byte* from, std::byte* to) const {
    for (const Move& pull : route.pulls) {
      if (is_empty(pull)) continue;
      const std::byte* source = from + bytes(pull.theirs.offset[0]);
      std::byte* target = to + bytes(pull.mine.offset[0]);
      if (source != target) std::memmove(target, source, bytes(pull.mine.extent[0]));
    }
  }

  void land() const {
    for (const HostSum& sum : plan_.host_sums) {
      std::vector<const std::byte*> addends;
      for (const HostOperand& operand : sum.operands) addends.push_back(addend(operand, sum.box));
      shm::reduce(memory_.output + bytes(sum.box.offset[0]), addends, sum.box.extent[0], *memory_.combine);
    }
    if (!plan_.host_sums.empty() || !plan_.lands_aside) return;
    for (const BoxRun& run : plan_.landed)
      shm::copy_bytes(memory_.output + bytes(run.box.offset[0]), landed_ + bytes(run.offset),
                      static_cast<int64_t>(bytes(run.box.extent[0])));
  }

  // Where the part `box` of the output lies, of what one host brings.
  const std::byte* addend(const HostOperand& operand, const Box& box) const {
    const std::byte* memory = operand.memory == HostOperand::Memory::landed      ? landed_
                              : operand.memory == HostOperand::Memory::home_sums ? sums_
                                                                                 : crossed_;
    return memory + bytes(operand.run.offset + box.offset[0] - operand.run.box.offset[0]);
  }

  TwoLevelSpans& group_;
  const TwoLevels& plan_;
  const SpanMemory& memory_;
  const shm::Subject& subject_;
  std::byte* landed_ = nullptr;
  std::byte* sums_ = nullptr;
  std::byte* crossed_ = nullptr;
};

void TwoLevelSpans::move(const RouteOf& route_of, const SpanMemory& memory, const shm::Subject& subject) {
  std::vector<ToldRoute> told;
  for (const int64_t mate : mates_)
    told.push_back({.route = route_of(mate), .has_contiguous_input = true, .has_contiguous_output = true});
  const TwoLevels plan = two_levels_of(hosts_, rank(), told, memory.element_bytes);
  Run(*this, plan, memory, subject).run();
}

}  // namespace shardway
