// Where the ranks of a job meet before they share anything but its name.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shm/join/reception.h"
#include "shm/memory/file.h"
#include "shm/memory/job.h"

namespace shardway::shm {

// Rank 0 listens at a socket named after the job, takes every rank's block and gives all blocks to each rank.
class Meeting {
 public:
  // Collective. Throws PeerLost for a rank that does not come within the timeout, and std::invalid_argument,
  // on every rank that comes, if two processes have the same rank or the ranks disagree on how many there
  // are.
  Meeting(const Job& job, std::chrono::milliseconds timeout);

  // Collective. Returns every rank's block in rank order; all have the same length. Throws PeerLost for a
  // rank that is gone, and std::invalid_argument, on every rank, if the ranks disagree.
  std::vector<std::byte> exchange(std::span<const std::byte> mine);

 private:
  using Clock = std::chrono::steady_clock;

  void be_host(File listener);
  void take(Guest guest);
  void welcome();
  void be_guest();
  void find_host();
  std::vector<std::byte> exchange_as_host(std::span<const std::byte> mine);
  std::vector<std::byte> exchange_as_guest(std::span<const std::byte> mine);

  Job job_;
  Clock::time_point deadline_;
  std::string name_;               // of the socket
  std::vector<File> guests_;       // on rank 0, by rank, none at 0; then who disagreed or came after that
  std::string disagreement_ = {};  // on rank 0: what the guests will be told
  File host_;                      // on the others
};

}  // namespace shardway::shm
