// The peer: MPI's own collectives, built once against each MPI. mpirun … mpi_ranks PATH [keep]
// `keep`: malloc gives nothing back to the system. A variant is the offset of the output in bytes: offset=N.
#include <mpi.h>

#include <string>
#include <vector>

#include "ranks/contender.h"
#include "ranks/heap.h"

namespace shardway::bench {
namespace {

// What the calls take, made before they are timed.
struct Counts {
  std::vector<int> sizes = {};
  std::vector<int> starts = {};
  std::vector<int> received = {};
  std::vector<int> received_starts = {};

  Counts(const Task& task, int64_t rank) {
    for (int64_t r = 0; r < task.ranks(); ++r) {
      sizes.push_back(static_cast<int>(task.sizes[r]));
      starts.push_back(static_cast<int>(task.start(r)));
      received.push_back(static_cast<int>(task.sizes[rank]));
      received_starts.push_back(static_cast<int>(r * task.sizes[rank]));
    }
  }
};

class Mpi final : public Contender {
 public:
  explicit Mpi(int rank) : rank_(rank) {}

  float* input(const Task& task, int64_t elements) override {
    counts_ = Counts(task, rank_);
    return allocate_floats(elements);
  }
  float* output(const Task& task, int64_t elements) override {
    return allocate_floats(elements, offset_of(task));
  }

  float* call(const Task& task, const float* x, float* out) override {
    if (out == nullptr) out = output(task, task.output_elements(rank_));
    const int* sizes = counts_.sizes.data();
    const int* starts = counts_.starts.data();
    switch (task.op) {
      case Op::all_gather_v:
        MPI_Allgatherv(x, sizes[rank_], MPI_FLOAT, out, sizes, starts, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Op::reduce_scatter_v:
        MPI_Reduce_scatter(x, out, sizes, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Op::all_to_all_v:
        MPI_Alltoallv(x, sizes, starts, MPI_FLOAT, out, counts_.received.data(),
                      counts_.received_starts.data(), MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case Op::all_reduce:
        MPI_Allreduce(x, out, sizes[rank_], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case Op::broadcast:
        if (rank_ == 0) out = const_cast<float*>(x);
        MPI_Bcast(out, sizes[rank_], MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case Op::barrier:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    }
    return out;
  }

  // MPI may keep bytes that a call has sent, and hand them to the network inside a later call: without one,
  // the ranks that need them would wait for ever.
  void progress() override {
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
  }

  void release(float* memory) override { free_floats(memory); }
  void drop_caches() override { trim_heap(); }

 private:
  int rank_;
  Counts counts_{{}, 0};
};

}  // namespace
}  // namespace shardway::bench

int main(int argc, char** argv) {
  using namespace shardway::bench;
  if (argc > 2 && std::string(argv[2]) == "keep") keep_freed_memory();
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int status = 0;
  {
    const std::string path = argv[1];
    Meeting meeting(path + ".page", rank, ranks);
    Mpi contender(rank);
    status = serve(contender, meeting, path);
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
  return status;
}
