// Ranks of an MPI program, on one host or several: `mpirun -n 4 ./mpi_hosts`.
#include <ATen/ops/full.h>
#include <mpi.h>
#include <shardway/collectives.h>
#include <shardway/mpi.h>

#include <cstdio>

namespace sw = shardway;

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);

  const sw::Group world = sw::join(MPI_COMM_WORLD);  // or another communicator
  const at::Tensor x = at::full({world.rank() + 1, 2}, static_cast<double>(world.rank()));
  const auto [all, sizes] = sw::all_gather_v(x, {.group = world});
  std::printf("rank %ld has %ld rows, their sum is %.0f\n", static_cast<long>(world.rank()),
              static_cast<long>(all.size(0)), all.sum().item<double>());

  MPI_Finalize();  // the group ends here at the latest
}
