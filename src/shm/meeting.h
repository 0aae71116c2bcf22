// Where the ranks of a job meet before they share anything but its name.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "shm/file.h"
#include "shm/job.h"

namespace shardway::shm {

// Rank 0 listens at a socket that the job's name leads to, takes every rank's block and gives all to each.
class Meeting {
 public:
  // Collective. Throws PeerLost for a rank that does not come within the timeout.
  Meeting(const Job& job, std::chrono::milliseconds timeout);

  // Every rank's block in rank order: collective, all of one length. Throws PeerLost for a rank that is gone,
  // and std::invalid_argument, on every rank, where the ranks disagree.
  std::vector<std::byte> exchange(std::span<const std::byte> mine);

 private:
  using Clock = std::chrono::steady_clock;

  void receive_guests(const std::string& name);
  void find_host(const std::string& name);
  std::vector<std::byte> exchange_as_host(std::span<const std::byte> mine);
  std::vector<std::byte> exchange_as_guest(std::span<const std::byte> mine);

  Job job_;
  Clock::time_point deadline_;
  std::vector<File> guests_;       // on rank 0, by rank; none at 0
  std::string disagreement_ = {};  // on rank 0: what the guests will be told
  File host_;                      // on the others
};

}  // namespace shardway::shm
