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

// Takes this rank's block of bytes and returns the blocks of all ranks in rank order. Collective; all blocks
// have one length. MPI_Allgather, a key-value store or a file will do.
using Exchange = std::function<std::vector<std::byte>(std::span<const std::byte> mine)>;

// Who joins. By default `shardway launch`, torchrun, mpirun (Open MPI, MPICH) or the variables RANK,
// WORLD_SIZE and MASTER_PORT decide; without any of them the program is its only rank. Only ranks of one
// launch meet: the first join of each rank meets the first join of the others, the second meets the second.
struct JoinOptions {
  std::optional<int64_t> rank = std::nullopt;  // rank, size and exchange go together
  std::optional<int64_t> size = std::nullopt;
  Exchange exchange = {};  // called twice, and only by join
  // How long a rank waits for another, now and in every call.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

}  // namespace shardway
