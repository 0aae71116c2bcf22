#include "cuda/kernels.h"

#include <algorithm>
#include <string>

#include "cuda/ptx.h"

namespace shardway::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int kBlocksPerProcessor = 16;

}  // namespace

DeviceKernels::Key DeviceKernels::key_of(const MoveTable& table, const std::optional<shm::Combine>& how) {
  const int table_bytes = table.used_bytes <= kSmallTableBytes ? kSmallTableBytes : kTableBytes;
  if (!how) return {.table_bytes = table_bytes, .unit_bytes = table.unit_bytes};
  return {.table_bytes = table_bytes,
          .unit_bytes = table.unit_bytes,
          .element = static_cast<int>(how->element),
          .op = static_cast<int>(how->op),
          .divides = how->divisor != 1};
}

void DeviceKernels::load(std::span<const MoveTable> tables, const std::optional<shm::Combine>& how) {
  const Driver& driver = Driver::instance();
  for (const MoveTable& table : tables) {
    const Key key = key_of(table, how);
    Function& function = functions_[key];
    if (function != nullptr) continue;
    const std::string text = how ? combine_text(*how, key.unit_bytes, key.table_bytes)
                                 : copy_text(key.unit_bytes, key.table_bytes);
    Module module = nullptr;
    driver.check(driver.functions().cuModuleLoadData(&module, text.c_str()), "load a kernel");
    driver.check(driver.functions().cuModuleGetFunction(&function, module, kEntry), "find a kernel");
  }
}

void DeviceKernels::launch(std::span<const MoveTable> tables, const std::optional<shm::Combine>& how,
                           Stream stream) {
  const Driver& driver = Driver::instance();
  for (const MoveTable& table : tables) {
    const uint32_t wanted = (table.most_units + kThreads * kUnitsAtOnce - 1) / (kThreads * kUnitsAtOnce);
    const int most = std::max(1, device_.processors() * kBlocksPerProcessor / table.jobs);
    const uint32_t blocks = std::clamp<uint32_t>(wanted, 1, static_cast<uint32_t>(most));
    void* parameter = const_cast<std::byte*>(table.bytes.data());  // the driver copies it
    driver.check(driver.functions().cuLaunchKernel(functions_.at(key_of(table, how)), blocks,
                                                   static_cast<unsigned>(table.jobs), 1, kThreads, 1, 1, 0,
                                                   stream, &parameter, nullptr),
                 "start a kernel");
  }
}

}  // namespace shardway::cuda
