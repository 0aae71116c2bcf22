// shardway as a program without torch uses it: HostGroup on plain buffers. shm_ranks PATH RANK RANKS [keep].
// `keep`: malloc gives nothing back to the system.
// Variants: ordinary, shared (the input lies where the peers can read it).
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ranks/contender.h"
#include "ranks/heap.h"
#include "shardway/shm.h"

namespace shardway::bench {
namespace {

class SharedMemory final : public Contender {
 public:
  explicit SharedMemory(Meeting& meeting)
      : group_(HostGroup::join(
            {.rank = meeting.rank(),
             .size = meeting.ranks(),
             .exchange = [&](std::span<const std::byte> mine) { return meeting.exchange(mine); }})) {}

  float* input(const Task& task, int64_t elements) override {
    const int64_t mine = task.sizes[static_cast<size_t>(group_.rank())];
    received_.assign(task.sizes.size(), mine);
    if (task.variant != "shared") return allocate_floats(elements);
    const std::shared_ptr<float[]> memory = group_.allocate<float>(elements);
    shared_[memory.get()] = memory;
    return memory.get();
  }
  float* output(const Task&, int64_t elements) override { return allocate_floats(elements); }

  float* call(const Task& task, const float* x, float* out) override {
    if (out == nullptr) out = output(task, task.output_elements(group_.rank()));
    const std::span from(x, static_cast<size_t>(task.input_elements(group_.rank())));
    const std::span to(out, static_cast<size_t>(task.output_elements(group_.rank())));
    switch (task.op) {
      case Op::all_gather_v:
        group_.all_gather_v(from, to, task.sizes);
        break;
      case Op::reduce_scatter_v:
        group_.reduce_scatter_v(from, to, task.sizes);
        break;
      case Op::all_to_all_v:
        group_.all_to_all_v(from, task.sizes, to, received_);
        break;
      case Op::all_reduce:
        group_.all_reduce(from, to);
        break;
      case Op::broadcast:
        if (group_.rank() == 0) out = const_cast<float*>(x);
        group_.broadcast(std::span(out, to.size()));
        break;
      case Op::barrier:
        group_.barrier();
        break;
    }
    return out;
  }

  void release(float* memory) override {
    if (shared_.erase(memory) == 0) free_floats(memory);
  }
  void drop_caches() override { trim_heap(); }

 private:
  HostGroup group_;
  std::vector<int64_t> received_;  // by an all_to_all_v from each rank
  std::unordered_map<float*, std::shared_ptr<float[]>> shared_;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4 && argc != 5) return 2;
  if (argc == 5) keep_freed_memory();
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  SharedMemory contender(meeting);
  return serve(contender, meeting, path);
}
