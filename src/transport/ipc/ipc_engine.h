// Routes between tensors on a GPU that the ranks of a group share.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/flags.h"
#include "cuda/kernels.h"
#include "cuda/shared_allocations.h"
#include "transport/common/home_process.h"
#include "transport/common/transport.h"
#include "transport/ipc/places.h"
#include "transport/ipc/taking.h"
#include "transport/ipc/watchdog.h"
#include "transport/shm/shm_engine.h"

namespace shardway {

// A call, seen by one rank. The hosts meet in shared memory and tell one another where their inputs lie. Then
// each queues on its caller's stream: that its input is ready; a wait until those are ready from which it
// takes; one kernel or a few that take everything straight into place; that it has finished; and a wait until
// those have finished that take from it. The host waits for the other hosts, and never for a device.
class IpcEngine {
 public:
  explicit IpcEngine(std::shared_ptr<ShmEngine> memory);
  ~IpcEngine();  // waits until the calls on the device are over
  IpcEngine(const IpcEngine&) = delete;
  IpcEngine& operator=(const IpcEngine&) = delete;

  // Collective. Queues the moves of these routes on the current stream of their tensors' device. Every rank
  // passes the routes in the same order.
  void run(std::vector<RouteCall> calls, const Subject& subject);

  // Moves that are queued again and again. As long as every rank's tensors lie where they lay in one of the
  // last runs, the ranks tell one another only that, and the kernels' tables stay as they are.
  struct Kept;
  static std::shared_ptr<Kept> keep(std::vector<RouteCall> calls);
  void run_again(Kept& kept, const Subject& subject);

  // Collective. From now on every rank's tensors stay where they are: nothing has to be told, so the host
  // waits for nobody, and a run may be captured in a CUDA graph. Every rank has to replay what it captured as
  // often as the others and in their order.
  void fix(Kept& kept, const Subject& subject);

  // Throws c10::DistBackendError if a peer is gone, so that what was received may be anything.
  void check() const;

 private:
  // What this rank has on one GPU.
  struct OnDevice {
    explicit OnDevice(int ordinal) : device(ordinal), kernels(device) {}

    cuda::Device device;
    cuda::DeviceKernels kernels;
  };

  OnDevice& on(c10::Device device);
  void open_flags();
  struct Edition;
  static void prepare(Kept& kept);
  void run(Kept& kept, bool is_first, const Subject& subject);
  bool holds(const Edition& edition, const Kept& kept, cuda::Stream stream);
  Edition* common_edition(Kept& kept, const Subject& subject, shm::SharedGroup& group, cuda::Stream stream);
  Edition& make_edition(Kept& kept, const Subject& subject, shm::SharedGroup& group, cuda::Stream stream);
  InputPlaces places_of(std::span<const RouteCall> calls, cuda::Stream stream);
  void show(InputPlace& place, const at::Tensor& x);
  std::vector<InputPlaces> exchanged(const InputPlaces& mine, const Subject& subject,
                                     shm::SharedGroup& group);
  void forget_freed(const std::vector<InputPlaces>& of_ranks);
  Taking::Sources sources_of(const RouteCall& call, const std::vector<InputPlaces>& of_ranks, size_t number);

  // A kernel's work in a call.
  struct Batch {
    std::optional<shm::Combine> how = std::nullopt;
    std::vector<cuda::BoxMove> moves = {};
    std::vector<cuda::MoveTable> tables = {};
  };
  static void add(std::vector<Batch>& batches, const std::optional<shm::Combine>& how,
                  std::vector<cuda::BoxMove> moves);
  void queue(const Edition& edition, OnDevice& here, cuda::Stream stream);
  void queue_counted(const Edition& edition, OnDevice& here, cuda::Stream stream);
  void queue_for_replays(const Edition& edition, OnDevice& here, cuda::Stream stream);
  static void queue_between(std::vector<cuda::MemoryOp>& before, const Edition& edition,
                            std::vector<cuda::MemoryOp>& after, OnDevice& here, cuda::Stream stream);

  HomeProcess home_;
  std::shared_ptr<ShmEngine> memory_;
  int64_t rank_;
  int64_t size_;
  std::map<int, std::unique_ptr<OnDevice>> devices_;  // by ordinal
  cuda::Exports exports_;
  std::vector<cuda::Imports> imports_;  // by rank
  std::unique_ptr<cuda::Flags> flags_;
  std::unique_ptr<Watchdog> watchdog_;
  std::vector<std::byte> rows_;  // the ranks' notes
  uint32_t calls_ = 0;
  cuda::Event last_ = nullptr;  // recorded behind the last call
  cuda::Stream last_stream_ = nullptr;
  OnDevice* last_device_ = nullptr;
};

}  // namespace shardway
