// How the ranks of a program find one another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace [[gnu::visibility("default")]] shardway {

// Every rank's block of bytes in rank order, from this rank's: collective, all blocks of one length.
// MPI_Allgather, a key-value store or a file will do.
using Exchange = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

// Who joins. All left out: what `shardway launch`, torchrun, mpirun (Open MPI, MPICH) or the variables RANK,
// WORLD_SIZE and MASTER_PORT say; where none of them is there, the program is its only rank. The ranks of one
// launch meet and no others, the first join of each with the first of the others, the second with the second.
struct JoinOptions {
  std::optional<int64_t> rank = std::nullopt;  // rank, size and exchange go together
  std::optional<int64_t> size = std::nullopt;
  Exchange exchange = {};  // called twice, by join alone
  // How long a rank waits for another, now and in every call.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

}  // namespace shardway
