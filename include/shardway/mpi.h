// Groups of an MPI program, on one host or several: the component mpi (see shardway/mpi_engine.h).
#pragma once

#include <mpi.h>

#include <chrono>

#include "shardway/group.h"
#include "shardway/mpi_engine.h"

namespace shardway {

// Joins the ranks of the communicator, in their order, to a group for CPU tensors: through shared memory
// inside a host, by MPI between hosts. Collective. Throws as join does.
[[nodiscard]] inline Group join(MPI_Comm communicator,
                                std::chrono::milliseconds timeout = std::chrono::minutes(30)) {
  return join_hosts(mpi_engine(communicator), timeout);
}

}  // namespace shardway
