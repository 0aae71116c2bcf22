// What no collective can beat: every rank reads its peers' inputs in place, and nobody waits for anybody. The
// inputs lie in a file that all ranks map. pull_ranks PATH RANK RANKS [keep]. It has one variant. `keep`:
// malloc gives nothing back to the system.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "ranks/contender.h"
#include "ranks/heap.h"
#include "shm/kernels/copy.h"
#include "shm/kernels/reduce.h"

namespace shardway::bench {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kPageBytes = 4096;

std::byte* bytes_of(float* floats) { return reinterpret_cast<std::byte*>(floats); }

// The inputs of all ranks, each from a page of its own on.
class Inputs {
 public:
  explicit Inputs(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file_ < 0) throw std::system_error(errno, std::generic_category(), path);
  }
  ~Inputs() {
    unmap();
    close(file_);
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  void map(const Task& task) {
    unmap();
    int64_t longest = 0;
    for (int64_t r = 0; r < task.ranks(); ++r)
      longest = std::max(longest, task.input_elements(r) * kFloatBytes);
    each_ = (longest + kPageBytes) / kPageBytes * kPageBytes;
    bytes_ = each_ * task.ranks();
    void* base = MAP_FAILED;
    if (ftruncate(file_, bytes_) == 0) {
      base = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    }
    if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "inputs");
    base_ = static_cast<std::byte*>(base);
  }
  void unmap() {
    if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
    base_ = nullptr;
  }

  std::byte* of(int64_t rank) const { return base_ + rank * each_; }

 private:
  int file_;
  std::byte* base_ = nullptr;
  int64_t each_ = 0;
  int64_t bytes_ = 0;
};

class Pulls final : public Contender {
 public:
  Pulls(const std::string& path, int64_t rank) : rank_(rank), inputs_(path + ".inputs") {}

  float* input(const Task& task, int64_t) override {
    inputs_.map(task);
    return reinterpret_cast<float*>(inputs_.of(rank_));
  }
  float* output(const Task&, int64_t elements) override { return allocate_floats(elements); }

  float* call(const Task& task, const float*, float* out) override {
    if (out == nullptr) out = output(task, task.output_elements(rank_));
    if (task.op == Op::reduce_scatter_v) return reduce(task, out, task.start(rank_));
    if (task.op == Op::all_reduce) return reduce(task, out, 0);
    const bool gathers = task.op == Op::all_gather_v;
    for (int64_t step = 0; step < task.ranks(); ++step) {  // one's own first: a peer takes the lines away
      const int64_t peer = (rank_ + step) % task.ranks();
      const int64_t from = gathers ? 0 : task.start(rank_);
      const int64_t to = gathers ? task.start(peer) : peer * task.sizes[rank_];
      const int64_t elements = task.sizes[gathers ? peer : rank_];
      shm::copy_bytes(bytes_of(out + to), inputs_.of(peer) + from * kFloatBytes, elements * kFloatBytes);
    }
    return out;
  }

  void release(float* memory) override {
    if (memory != reinterpret_cast<float*>(inputs_.of(rank_))) return free_floats(memory);
    inputs_.unmap();
  }
  void drop_caches() override { trim_heap(); }

 private:
  // Of inputs from element `begin` on.
  float* reduce(const Task& task, float* out, int64_t begin) const {
    std::vector<const std::byte*> addends;
    for (int64_t peer = 0; peer < task.ranks(); ++peer) {
      addends.push_back(inputs_.of(peer) + begin * kFloatBytes);
    }
    shm::reduce(bytes_of(out), addends, task.sizes[rank_], {.element = shm::Element::f32});
    return out;
  }

  int64_t rank_;
  Inputs inputs_;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 4 && argc != 5) return 2;
  if (argc == 5) keep_freed_memory();
  const std::string path = argv[1];
  Meeting meeting(path + ".page", std::stoll(argv[2]), std::stoll(argv[3]));
  Pulls contender(path, meeting.rank());
  return serve(contender, meeting, path);
}
