// Memory that the ranks of a calibration share with the process that started them.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <span>
#include <system_error>
#include <vector>

namespace shardway::cli {

struct RankStamps {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// What is written by one process and read by others is atomic; the rest is handed over by a barrier.
struct TrialWords {
  std::atomic<bool> must_stop = false;    // by the starter
  std::atomic<bool> goes_on = true;       // by rank 0, before a barrier
  std::atomic<int64_t> begun_ns = 0;      // by rank 0, when what counts begins; 0 before
  std::atomic<int64_t> trials_made = 0;   // by rank 0
  std::atomic<int64_t> failed_rank = -1;  // by the first rank that fails
  std::array<char, 480> why = {};         // by that rank, before it ends
};

class TrialBoard {
 public:
  static constexpr size_t kMostRepetitions = 4096;

  TrialBoard(size_t ranks, size_t trials)
      : ranks_(ranks),
        trials_(trials),
        bytes_(sizeof(TrialWords) + ranks * sizeof(RankStamps) + trials * sizeof(std::atomic<int64_t>) +
               trials * kMostRepetitions * sizeof(double)),
        memory_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {
    if (memory_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    new (memory_) TrialWords;
  }
  TrialBoard(const TrialBoard&) = delete;
  TrialBoard& operator=(const TrialBoard&) = delete;
  ~TrialBoard() { munmap(memory_, bytes_); }

  TrialWords& words() const { return *static_cast<TrialWords*>(memory_); }
  std::span<RankStamps> stamps() const {
    return {reinterpret_cast<RankStamps*>(static_cast<std::byte*>(memory_) + sizeof(TrialWords)), ranks_};
  }

  // By rank 0; beyond the most repetitions it does nothing.
  void add(size_t trial, double us) const {
    const auto count = static_cast<size_t>(counts()[trial].load(std::memory_order_relaxed));
    if (count == kMostRepetitions) return;
    values()[trial * kMostRepetitions + count] = us;
    counts()[trial].store(static_cast<int64_t>(count + 1), std::memory_order_release);  // with repetitions_of
  }

  std::vector<double> repetitions_of(size_t trial) const {
    const auto count = static_cast<size_t>(counts()[trial].load(std::memory_order_acquire));
    const double* first = values() + trial * kMostRepetitions;
    return {first, first + count};
  }

 private:
  std::atomic<int64_t>* counts() const {
    return reinterpret_cast<std::atomic<int64_t>*>(stamps().data() + ranks_);
  }
  double* values() const { return reinterpret_cast<double*>(counts() + trials_); }

  size_t ranks_;
  size_t trials_;
  size_t bytes_;
  void* memory_;
};

}  // namespace shardway::cli
