// shardway's ops on tensors, through its C++ API. tensor_ranks PATH RANK RANKS.
// Variants: ordinary, shared (the input lies in this rank's arena).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "ranks/contender.h"
#include "ranks/heap.h"
#include "shardway/shardway.h"
#include "shm/group/group.h"
#include "transport/shm/shm.h"

namespace shardway::bench {
namespace {

std::shared_ptr<shm::SharedGroup> joined(Meeting& meeting) {
  shm::JoinedGroup found = shm::SharedGroup::join(
      {.rank = meeting.rank(), .size = meeting.ranks(), .exchange = [&](std::span<const std::byte> mine) {
         return meeting.exchange(mine);
       }});
  if (found.group == nullptr) throw std::runtime_error("the ranks share no memory: " + found.why_not);
  return found.group;
}

at::Tensor shared_floats(const std::shared_ptr<shm::Arena>& arena, int64_t elements) {
  std::byte* block = arena->allocate(elements * static_cast<int64_t>(sizeof(float)));
  return at::from_blob(
      block, {elements}, [arena, block](void*) { arena->free(block); }, at::kFloat);
}

class Tensors final : public Contender {
 public:
  explicit Tensors(Meeting& meeting) : shm_(joined(meeting)), group_(make_shm_transport(shm_)) {}

  float* input(const Task& task, int64_t elements) override {
    return keep(task.variant == "shared" ? shared_floats(shm_->arena(), elements) : at::empty({elements}));
  }
  float* output(const Task&, int64_t elements) override { return keep(at::empty({elements})); }

  float* call(const Task& task, const float* x, float* out) override {
    std::optional<at::Tensor> given;
    if (out != nullptr) given = tensors_.at(out);
    at::Tensor result = run(task, tensors_.at(const_cast<float*>(x)), given);
    return out != nullptr ? out : keep(std::move(result));
  }

  void release(float* memory) override { tensors_.erase(memory); }
  void drop_caches() override {
    empty_cache();
    trim_heap();
  }

 private:
  float* keep(at::Tensor tensor) {
    auto* data = tensor.mutable_data_ptr<float>();
    tensors_[data] = std::move(tensor);
    return data;
  }

  at::Tensor run(const Task& task, const at::Tensor& x, const std::optional<at::Tensor>& out) const {
    switch (task.op) {
      case bench::Op::all_gather_v:
        return all_gather_v(x, {.sizes = task.sizes, .out = out, .group = group_}).tensor;
      case bench::Op::reduce_scatter_v:
        return reduce_scatter_v(x, {.sizes = task.sizes, .out = out, .group = group_});
      default: {
        const Sizes received(task.sizes.size(), task.sizes[static_cast<size_t>(group_.rank())]);
        return all_to_all_v(x, task.sizes, {.recv_sizes = received, .out = out, .group = group_}).tensor;
      }
    }
  }

  std::shared_ptr<shm::SharedGroup> shm_;
  Group group_;
  std::unordered_map<float*, at::Tensor> tensors_;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4) return 2;
  at::set_num_threads(1);
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  Tensors contender(meeting);
  return serve(contender, meeting, path);
}
