// The collectives of c10d as routes of a transport.
#pragma once

#include <functional>

#include "c10d_calls/call_terms.h"
#include "c10d_calls/collectives.h"
#include "c10d_calls/table.h"
#include "transport/common/transport.h"
#include "transport/shm/shm_engine.h"

namespace shardway::backend {

// What a rank says of a call is checked first. Then the moves are a route, and tensors are on a device that
// the transport moves.
class RoutedCollectives : public Collectives {
 public:
  void barrier() override;
  void all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) override;
  void all_reduce_together(const Tensors& list, const c10d::ReduceOp& op) override;
  void sparse_all_reduce(const at::Tensor& t, const c10d::ReduceOp& op) override;
  void broadcast(const at::Tensor& t, int64_t root) override;
  void reduce(const at::Tensor& t, const c10d::ReduceOp& op, int64_t root) override;
  void all_gather(const Tensors& outputs, const at::Tensor& input) override;
  void all_gather_single(const at::Tensor& output, const at::Tensor& input) override;
  void gather(const Tensors& outputs, const at::Tensor& input, int64_t root) override;
  void scatter(const at::Tensor& output, const Tensors& inputs, int64_t root) override;
  void reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op) override;
  void reduce_scatter_single(const at::Tensor& output, const at::Tensor& input,
                             const c10d::ReduceOp& op) override;
  void all_to_all(const Tensors& outputs, const Tensors& inputs) override;
  void all_to_all_single(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits) override;

 protected:
  // The transport must outlive this object.
  RoutedCollectives(Transport& transport, c10::DeviceType device) : transport_(transport), device_(device) {}

  // Returns whether the moves follow. Throws c10::ValueError if `terms` does.
  virtual bool agrees(Collective call, const std::function<Terms()>& terms) = 0;

  // Makes a call that no route does.
  virtual void on_cpu(const std::function<void(Collectives&)>& call) = 0;

 private:
  CallPlace place() const {
    return {.rank = transport_.rank(), .size = transport_.size(), .device = device_};
  }

  Transport& transport_;
  c10::DeviceType device_;
};

// On the tensors of a table's device. The hosts agree first, as for CPU tensors. Then the moves are queued on
// the current stream. What no kernel does (bitwise operations, scaled sums, sparse tensors) goes through the
// CPU: the host waits for the device.
class DeviceCollectives : public RoutedCollectives {
 public:
  // The ranks agree in `memory`. All must outlive this object.
  DeviceCollectives(Transport& transport, ShmEngine& memory, Table& table)
      : RoutedCollectives(transport, table.device()), memory_(memory), table_(table) {}

 private:
  // Collective: throws the same c10::ValueError on every rank if `terms` throws on one, or if ranks disagree.
  bool agrees(Collective call, const std::function<Terms()>& terms) override;
  void on_cpu(const std::function<void(Collectives&)>& call) override;

  ShmEngine& memory_;
  Table& table_;
};

}  // namespace shardway::backend
