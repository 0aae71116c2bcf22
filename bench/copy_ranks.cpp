// The floor: each rank copies as many bytes as the collective would have it read, all at once, into warm
// memory of its own. copy_ranks PATH RANK RANKS. Variants: memcpy, copy_loop.
#include <cstring>
#include <stdexcept>
#include <string>

#include "ranks/contender.h"
#include "ranks/heap.h"
#include "shm/kernels/copy.h"

namespace shardway::bench {
namespace {

class Copy final : public Contender {
 public:
  float* input(const Task&, int64_t elements) override { return allocate_floats(elements); }
  float* output(const Task&, int64_t elements) override {
    float* memory = allocate_floats(elements);
    std::memset(memory, 0, static_cast<size_t>(elements) * sizeof(float));
    elements_ = elements;
    return memory;
  }

  float* call(const Task& task, const float* x, float* out) override {
    const int64_t bytes = elements_ * static_cast<int64_t>(sizeof(float));
    if (task.variant == "memcpy") {
      std::memcpy(out, x, static_cast<size_t>(bytes));
    } else {
      shm::copy_bytes(reinterpret_cast<std::byte*>(out), reinterpret_cast<const std::byte*>(x), bytes);
    }
    return out;
  }

  void release(float* memory) override { free_floats(memory); }
  void drop_caches() override { trim_heap(); }

  int64_t input_elements(const Task& task, int64_t rank) const override { return read_by(task, rank); }
  int64_t output_elements(const Task& task, int64_t rank) const override { return read_by(task, rank); }
  float expected(const Task&, int64_t rank, int64_t i, int64_t turn) const override {
    return element(rank, i, turn);
  }

 private:
  static int64_t read_by(const Task& task, int64_t rank) {
    return task.op == Op::all_gather_v ? task.total() : task.ranks() * task.sizes[rank];
  }

  int64_t elements_ = 0;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4) return 2;
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  Copy contender;
  return serve(contender, meeting, path);
}
