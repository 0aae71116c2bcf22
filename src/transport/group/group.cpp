#include "shardway/group.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "transport/group/joined.h"
#include "transport/group/lone_transport.h"
#include "transport/group/process_group.h"

namespace shardway {
namespace {

// Transfers that are finished one after the other.
struct TransferList : Transfer {
  std::vector<std::unique_ptr<Transfer>> transfers;

  void finish() override {
    for (const auto& transfer : transfers) transfer->finish();
  }
  bool is_over() override {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const auto& transfer) { return transfer->is_over(); });
  }
};

// The value of WORLD_SIZE; 1 if it is not set.
int64_t promised_ranks() {
  const char* text = std::getenv("WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe): read, never set here
  return text == nullptr ? 1 : std::strtoll(text, nullptr, 10);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): transports with a thread keep it
std::unique_ptr<Posted> Transport::post(std::function<void()>) {
  TORCH_INTERNAL_ASSERT(false, "a call was posted to a transport without a thread");
}

void Transport::meet(const Opening& /*opening*/, const Subject& /*subject*/, const Decide& /*decide*/) {
  TORCH_INTERNAL_ASSERT(false, "a transport that does not move in meetings was asked to");
}

std::unique_ptr<Transfer> Transport::start_all(const std::vector<RouteCall>& calls, const Subject& subject) {
  auto all = std::make_unique<TransferList>();
  for (const RouteCall& call : calls)
    all->transfers.push_back(start(*call.route, call.x, call.out, {}, subject));
  return all;
}

Group::Group() {
  std::vector<std::shared_ptr<Transport>> worlds = joined_worlds();
  if (worlds.size() == 1) {
    *this = Group(std::move(worlds.front()));
  } else {
    doubt_ = worlds.empty() ? Doubt::nothing_joined : Doubt::several_joined;
  }
}

Group Group::alone() { return Group(std::shared_ptr<Transport>()); }

void Group::tell_doubt(const char* op) const {
  TORCH_CHECK_VALUE(
      doubt_ != Doubt::several_joined, op,
      ": no group is given, and this program has joined several worlds: say which one is meant, as "
      "in {.group = world}");
  if (promised_ranks() < 2) return;
  TORCH_WARN_ONCE(
      op, ": WORLD_SIZE=", promised_ranks(),
      " is set, but no group is given and none was joined: this call, and those after it, see one rank "
      "and give their input back; call shardway::join first and keep what it gives, or pass a group");
}

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group)
    : Group(process_group ? make_transport(std::move(process_group)) : nullptr) {}

Group::Group(c10::intrusive_ptr<c10d::ProcessGroup> process_group, std::vector<int64_t> global_ranks)
    : Group(std::move(process_group)) {
  global_ranks_ = std::move(global_ranks);
  TORCH_CHECK_VALUE(static_cast<int64_t>(global_ranks_.size()) == size_, "group: ", global_ranks_.size(),
                    " global ranks for a group of ", size_);
}

Group::Group(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
  if (!transport_) return;
  rank_ = transport_->rank();
  size_ = transport_->size();
}

std::vector<int64_t> Group::global_ranks() const {
  std::vector<int64_t> numbers = global_ranks_.empty() ? transport().global_ranks() : global_ranks_;
  if (!numbers.empty()) return numbers;
  numbers.resize(static_cast<size_t>(size_));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Transport& Group::transport() const {
  static const std::shared_ptr<Transport> lone = lone_transport();
  return transport_ ? *transport_ : *lone;
}

Group Group::named(const std::string& name) { return {c10d::resolve_process_group(name)}; }

}  // namespace shardway
