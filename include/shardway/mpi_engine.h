// MPI as the engine between hosts, for programs with torch (shardway/mpi.h) and without: the component mpi,
// which is compiled with the MPI of the program that links it.
//
//   MPI_Init(&argc, &argv);
//   const auto world = shardway::HostGroup::join(shardway::mpi_engine(MPI_COMM_WORLD));
#pragma once

#include <mpi.h>

#include "shardway/message_engine.h"

namespace shardway {

// The ranks are those of the communicator. The program calls MPI_Init or MPI_Init_thread before, and
// MPI_Finalize at its end, with MPI_THREAD_MULTIPLE if asynchronous calls are to run beside their caller:
// below that they are over when they return. The engine duplicates the communicator and frees its duplicate
// in MPI_Finalize at the latest; after that every call on the group throws. A communicator that is null, as
// after MPI_Comm_free, or that spans two groups is a std::invalid_argument.
EngineMaker mpi_engine(MPI_Comm communicator);

}  // namespace shardway
