// The peer: oneCCL's collectives on the CPU, started by Intel MPI's launcher, which says each process its
// rank. mpiexec … oneccl_ranks PATH. A variant is the offset of the output in bytes: offset=N.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "oneapi/ccl.hpp"
#include "ranks/contender.h"
#include "ranks/heap.h"

namespace shardway::bench {
namespace {

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error(std::string(variable) + " is not set: use mpiexec");
  return std::stoi(text);
}

// Rank 0's address, by which the others find it.
std::shared_ptr<ccl::kvs> meet_at_store(Meeting& meeting) {
  ccl::kvs::address_type address{};
  std::shared_ptr<ccl::kvs> store;
  if (meeting.rank() == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  const std::vector<std::byte> all = meeting.exchange(std::as_bytes(std::span(address)));
  if (meeting.rank() == 0) return store;
  std::memcpy(address.data(), all.data(), sizeof(address));
  return ccl::create_kvs(address);
}

class OneCcl final : public Contender {
 public:
  explicit OneCcl(Meeting& meeting)
      : rank_(meeting.rank()),
        communicator_(ccl::create_communicator(static_cast<int>(meeting.ranks()), static_cast<int>(rank_),
                                               meet_at_store(meeting))) {}

  float* input(const Task& task, int64_t elements) override {
    sizes_.assign(task.sizes.begin(), task.sizes.end());
    return allocate_floats(elements);
  }
  float* output(const Task& task, int64_t elements) override {
    return allocate_floats(elements, offset_of(task));
  }

  float* call(const Task& task, const float* x, float* out) override {
    if (out == nullptr) out = output(task, task.output_elements(rank_));
    const size_t own = sizes_[static_cast<size_t>(rank_)];
    switch (task.op) {
      case Op::all_gather_v:
        ccl::allgatherv(x, own, out, sizes_, ccl::datatype::float32, communicator_).wait();
        break;
      case Op::reduce_scatter_v:  // of equal sizes alone
        ccl::reduce_scatter(x, out, own, ccl::datatype::float32, ccl::reduction::sum, communicator_).wait();
        break;
      case Op::all_reduce:
        ccl::allreduce(x, out, own, ccl::datatype::float32, ccl::reduction::sum, communicator_).wait();
        break;
      default:
        throw std::invalid_argument("oneCCL is raced at gathers and reductions alone");
    }
    return out;
  }

  void release(float* memory) override { free_floats(memory); }
  void drop_caches() override { trim_heap(); }

 private:
  int64_t rank_;
  ccl::communicator communicator_;
  std::vector<size_t> sizes_;
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc != 2) return 2;
  ccl::init();
  const std::string path = argv[1];
  Meeting meeting(path + ".page", number_of("PMI_RANK"), number_of("PMI_SIZE"));
  OneCcl contender(meeting);
  return serve(contender, meeting, path);
}
