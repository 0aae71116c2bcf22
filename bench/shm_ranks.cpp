// shardway's shared memory as a program without torch uses it: src/shm on plain buffers.
// shm_ranks PATH RANK RANKS. Variants: ordinary, shared (the input lies in this rank's arena).
#include <stdexcept>
#include <string>

#include "ranks/contender.h"
#include "ranks/heap.h"
#include "shm/group.h"

namespace shardway::bench {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

shm::Dims dims_of(int64_t value) { return std::span<const int64_t>(&value, 1); }

// Every rank's part of the total, on every rank.
void add_gather(shm::Part& part, const Task& task, int64_t rank) {
  for (int64_t peer = 0; peer < task.ranks(); ++peer) {
    part.pushes.push_back({.peer = peer, .from = dims_of(0), .extent = dims_of(task.sizes[rank])});
    part.pulls.push_back({.peer = peer,
                          .from = dims_of(0),
                          .to = dims_of(task.start(peer)),
                          .extent = dims_of(task.sizes[peer])});
  }
}

// Part r of every rank's total goes to rank r, where they are added, or lie one after the other.
void add_exchange(shm::Part& part, const Task& task, int64_t rank) {
  const int64_t mine = task.sizes[rank];
  const bool adds = task.op == Op::reduce_scatter_v;
  for (int64_t peer = 0; peer < task.ranks(); ++peer) {
    part.pushes.push_back(
        {.peer = peer, .from = dims_of(task.start(peer)), .extent = dims_of(task.sizes[peer])});
    part.pulls.push_back({.peer = peer,
                          .from = dims_of(task.start(rank)),
                          .to = dims_of(adds ? 0 : peer * mine),
                          .extent = dims_of(mine)});
  }
  if (!adds) return;
  part.combine = shm::Combine{.element = shm::Element::f32};
  if (mine == 0) return;
  part.landings.push_back({.to = dims_of(0), .extent = dims_of(mine), .addends = {}});
  for (int64_t peer = 0; peer < task.ranks(); ++peer) {
    part.landings[0].addends.push_back({.pull = peer, .from = dims_of(0)});
  }
}

class SharedMemory final : public Contender {
 public:
  explicit SharedMemory(Meeting& meeting) {
    shm::Joined joined = shm::Group::join(
        {.rank = meeting.rank(), .size = meeting.ranks(), .exchange = [&](std::span<const std::byte> mine) {
           return meeting.exchange(mine);
         }});
    if (joined.group == nullptr) throw std::runtime_error("the ranks share no memory: " + joined.why_not);
    group_ = std::move(joined.group);
  }

  float* input(const Task& task, int64_t elements) override {
    if (task.variant != "shared") return allocate_floats(elements);
    return reinterpret_cast<float*>(group_->arena()->allocate(elements * kFloatBytes));
  }
  float* output(const Task&, int64_t elements) override { return allocate_floats(elements); }

  float* call(const Task& task, const float* x, float* out) override {
    const int64_t rank = group_->rank();
    shm::Part part{.element_bytes = kFloatBytes};
    part.input = {.data = reinterpret_cast<const std::byte*>(x),
                  .shape = dims_of(task.input_elements(rank)),
                  .strides = dims_of(kFloatBytes)};
    part.output = reinterpret_cast<std::byte*>(out);
    part.output_strides = dims_of(kFloatBytes);
    part.pulls.reserve(task.sizes.size());
    part.pushes.reserve(task.sizes.size());
    task.op == Op::all_gather_v ? add_gather(part, task, rank) : add_exchange(part, task, rank);
    part.pulls[rank].here = &part.input;
    group_->run(part);
    return out;
  }

  void release(float* memory) override {
    auto* bytes = reinterpret_cast<std::byte*>(memory);
    if (memory != nullptr && group_->arena()->contains(bytes, 0)) return group_->arena()->free(bytes);
    free_floats(memory);
  }
  void drop_caches() override {
    trim_heap();
    group_->arena()->trim();
  }

 private:
  std::shared_ptr<shm::Group> group_;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4) return 2;
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  SharedMemory contender(meeting);
  return serve(contender, meeting, path);
}
