// The calls that a process group makes by its own engine (gloo, NCCL, …), in this process's record of calls.
// Calls in shared memory are recorded below, by shm/group.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "record/recorder.h"
#include "transport/common/transport.h"

namespace c10d {
class ProcessGroup;
}

namespace shardway {

// One for each process group. All ranks of the group number its calls alike.
class EngineCalls : public std::enable_shared_from_this<EngineCalls> {
 public:
  // `global_ranks` by rank in the group; empty if they are 0, 1, … or not known.
  EngineCalls(c10d::ProcessGroup& group, std::vector<int64_t> global_ranks);

  // Tells which ranks run on other hosts. Until then any rank may.
  void know_hosts(std::vector<int64_t> elsewhere);

  // Records the making of the group.
  void join(const std::function<void()>& body);

  // Records a call that is over when `body` returns.
  void run(const char* op, int64_t bytes, const std::function<void()>& body);

  // Records a call that is over when the transfer is: until then its line says that it runs.
  std::unique_ptr<Transfer> start(const char* op, int64_t bytes,
                                  const std::function<std::unique_ptr<Transfer>()>& body);

 private:
  class RecordedTransfer;

  record::CallStart start_of(const char* op, uint64_t number, int64_t bytes) const;

  // Runs `body`. If it throws because a peer was lost, reports what all ranks are doing, once.
  void watch(const std::function<void()>& body);
  void report(const std::string& why);

  int64_t rank_;
  int64_t size_;
  uint64_t id_;
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<bool> may_span_hosts_ = true;
  std::vector<int64_t> elsewhere_;
  std::atomic<bool> has_reported_ = false;
};

}  // namespace shardway
