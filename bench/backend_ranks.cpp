// The backend of torch.distributed, called from C++. backend_ranks PATH RANK RANKS.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <unordered_map>

#include "backend/backend.h"
#include "ranks/contender.h"
#include "ranks/heap.h"

namespace shardway::bench {
namespace {

class Tensors final : public Contender {
 public:
  Tensors(const Meeting& meeting, const std::string& store)
      : backend_(c10::make_intrusive<backend::Backend>(
            c10::make_intrusive<c10d::FileStore>(store, static_cast<int>(meeting.ranks())),
            static_cast<int>(meeting.rank()), static_cast<int>(meeting.ranks()),
            c10::make_intrusive<backend::Options>())) {}

  float* input(const Task&, int64_t elements) override { return keep(elements); }
  float* output(const Task&, int64_t elements) override { return keep(elements); }

  // c10d's calls work in place: the result is where the input was.
  float* call(const Task& task, const float* x, float*) override {
    auto* data = const_cast<float*>(x);
    backend::Tensors& tensors = tensors_.at(data);
    switch (task.op) {
      case Op::all_reduce:
        backend_->allreduce(tensors, all_reduce_)->wait();
        break;
      case Op::broadcast:
        backend_->broadcast(tensors, broadcast_)->wait();
        break;
      case Op::barrier:
        backend_->barrier(barrier_)->wait();
        break;
      default:
        throw std::invalid_argument("the backend's calls are all_reduce, broadcast and barrier");
    }
    return data;
  }

  void release(float* memory) override { tensors_.erase(memory); }
  void drop_caches() override { trim_heap(); }

 private:
  float* keep(int64_t elements) {
    const at::Tensor tensor = at::empty({elements + 1});  // with none it would lie nowhere
    auto* data = tensor.mutable_data_ptr<float>();
    tensors_[data] = {tensor.narrow(0, 0, elements)};
    return data;
  }

  c10::intrusive_ptr<backend::Backend> backend_;
  std::unordered_map<float*, backend::Tensors> tensors_;
  c10d::AllreduceOptions all_reduce_ = {.asyncOp = false};
  c10d::BroadcastOptions broadcast_ = {.asyncOp = false};
  c10d::BarrierOptions barrier_ = {.asyncOp = false};
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4) return 2;
  at::set_num_threads(1);
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  Tensors contender(meeting, path + ".store");
  return serve(contender, meeting, path);
}
