// Where the ranks of a job meet before they share anything but its name.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "shm/join/job.h"
#include "shm/join/reception.h"
#include "shm/memory/file.h"

namespace shardway::shm {

// Rank 0 listens at a socket that the job's name leads to, takes every rank's block and gives all to each.
class Meeting {
 public:
  // Collective. Throws PeerLost for a rank that does not come within the timeout, and std::invalid_argument,
  // on every rank that comes, where two have one number or the ranks disagree on how many they are.
  Meeting(const Job& job, std::chrono::milliseconds timeout);

  // Every rank's block in rank order: collective, all of one length. Throws PeerLost for a rank that is gone,
  // and std::invalid_argument, on every rank, where the ranks disagree.
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
  std::vector<File> guests_;       // on rank 0, by rank; none at 0; behind them those who disagree
  std::string disagreement_ = {};  // on rank 0: what the guests will be told
  File host_;                      // on the others
};

}  // namespace shardway::shm
