#include "cuda/shared_allocations.h"

#include <string>

namespace shardway::cuda {
namespace {

constexpr int kNumber = 7;                  // CU_POINTER_ATTRIBUTE_BUFFER_ID
constexpr int kIsManaged = 8;               // CU_POINTER_ATTRIBUTE_IS_MANAGED
constexpr int kHasHandles = 10;             // CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
constexpr unsigned kEnablesPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
constexpr size_t kMostShown = 4096;         // more than a process has large allocations

uint64_t number_at(DeviceAddress address) {
  uint64_t number = 0;
  const bool is_memory = Driver::instance().functions().cuPointerGetAttribute(&number, kNumber, address) == 0;
  return is_memory ? number : 0;
}

bool has_attribute(DeviceAddress address, int attribute) {
  int value = 0;
  return Driver::instance().functions().cuPointerGetAttribute(&value, attribute, address) == 0 && value != 0;
}

std::string why_not_shared(DeviceAddress address) {
  if (has_attribute(address, kIsManaged)) return "it is managed memory";
  return "it was not allocated by cudaMalloc; with torch's allocator, set "
         "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False and do not set backend:cudaMallocAsync";
}

}  // namespace

Exports::Shown Exports::place_of(DeviceAddress address) {
  const Driver& driver = Driver::instance();
  const uint64_t number = number_at(address);
  if (number == 0) throw DriverError("the tensor's memory cannot be shared: the driver does not know it");
  auto found = shown_.find(number);
  if (found == shown_.end()) {
    if (!has_attribute(address, kHasHandles))
      throw DriverError("the tensor's memory cannot be shared: " + why_not_shared(address));
    Exported made{.name = {.number = number}};
    size_t bytes = 0;
    driver.check(driver.functions().cuMemGetAddressRange(&made.base, &bytes, address), "find an allocation");
    made.name.bytes = static_cast<int64_t>(bytes);
    driver.check(driver.functions().cuIpcGetMemHandle(&made.name.handle, made.base),
                 "share the tensor's memory");
    if (shown_.size() >= kMostShown) shown_.erase(shown_.begin());
    found = shown_.emplace(number, made).first;
  }
  return {.allocation = found->second.name, .offset = static_cast<int64_t>(address - found->second.base)};
}

bool Exports::is_shown(uint64_t number) const {
  const auto found = shown_.find(number);
  return found != shown_.end() && number_at(found->second.base) == number;
}

std::map<uint64_t, Exports::Exported>::iterator Exports::next_shown() {
  const auto next = shown_.upper_bound(looked_at_);
  return next == shown_.end() ? shown_.begin() : next;
}

bool Exports::has_freed() {
  const auto next = next_shown();
  if (next == shown_.end()) return false;
  if (!is_shown(next->first)) return true;
  looked_at_ = next->first;
  return false;
}

uint64_t Exports::next_freed() {
  const auto next = next_shown();
  if (next == shown_.end()) return 0;
  looked_at_ = next->first;
  if (is_shown(looked_at_)) return 0;
  shown_.erase(next);
  return looked_at_;
}

DeviceAddress Imports::open(const AllocationName& name, int64_t owner) {
  const auto found = opened_.find(name.number);
  if (found != opened_.end()) return found->second;
  const Driver& driver = Driver::instance();
  DeviceAddress base = 0;
  driver.check(driver.functions().cuIpcOpenMemHandle(&base, name.handle, kEnablesPeerAccess),
               "map the memory of rank " + std::to_string(owner));
  opened_.emplace(name.number, base);
  DeviceAddress start = 0;
  size_t bytes = 0;
  driver.check(driver.functions().cuMemGetAddressRange(&start, &bytes, base),
               "measure the memory of rank " + std::to_string(owner));
  if (start + bytes - base < static_cast<uint64_t>(name.bytes))
    throw DriverError("rank " + std::to_string(owner) + " told a larger allocation than there is");
  return base;
}

void Imports::close(uint64_t number) {
  const auto found = opened_.find(number);
  if (found == opened_.end()) return;
  Driver::instance().functions().cuIpcCloseMemHandle(found->second);
  opened_.erase(found);
}

void Imports::close_all() {
  while (!opened_.empty()) close(opened_.begin()->first);
}

}  // namespace shardway::cuda
