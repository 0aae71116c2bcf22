// Tensors in an MPI program. Arguments: the thread level, then which join.
#include <mpi.h>
#include <shardway/mpi.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>

#include "tensor_calls.h"

namespace sw = shardway;

namespace {

constexpr std::chrono::milliseconds kTimeout = std::chrono::seconds(20);

sw::Group joined(const std::string& how) {
  if (how == "environment") return sw::join({.timeout = kTimeout});
  return sw::join(MPI_COMM_WORLD, kTimeout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc > 1 ? argv[1] : "multiple";
  const std::string how = argc > 2 ? argv[2] : "communicator";
  int given = 0;
  MPI_Init_thread(&argc, &argv, level == "multiple" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
  try {
    const sw::Group world = joined(how);
    make_tensor_calls(world);
    MPI_Finalize();
    if (how == "late") call_too_late(world);
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    std::fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}
