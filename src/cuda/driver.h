// The CUDA driver, opened when it is first asked for: the library is built without a CUDA toolkit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace shardway::cuda {

// What a call of the driver returned, in words.
class DriverError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

using DeviceAddress = uint64_t;  // of memory on a device
using Stream = void*;
using Event = void*;
using Context = void*;
using Module = void*;
using Function = void*;

struct IpcHandle {
  std::array<char, 64> bytes;
};

struct Uuid {
  std::array<char, 16> bytes;

  bool operator==(const Uuid&) const = default;
};
std::string text_of(const Uuid& uuid);  // as nvidia-smi prints it

// One wait or write of a 32-bit word in the order of a stream. The driver reads these bytes.
struct MemoryOp {
  enum class Kind : uint32_t { wait = 1, write = 2 };

  Kind kind = Kind::wait;
  uint32_t unused = 0;
  DeviceAddress address = 0;
  uint64_t value = 0;
  uint32_t flags = 0;  // wait: until the word, as a counter that wraps, has reached the value
  uint32_t unused_too = 0;
  uint64_t alias = 0;
  uint64_t padding = 0;
};
static_assert(sizeof(MemoryOp) == 48);

// The driver's functions that this library uses, under the driver's own names.
// NOLINTBEGIN(readability-identifier-naming): people look these names up
struct DriverFunctions {
  int (*cuInit)(unsigned flags);
  int (*cuGetErrorName)(int status, const char** name);
  int (*cuGetErrorString)(int status, const char** text);
  int (*cuDeviceGet)(int* device, int ordinal);
  int (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  int (*cuDeviceGetUuid)(Uuid* uuid, int device);
  int (*cuDevicePrimaryCtxRetain)(Context* context, int device);
  int (*cuCtxPushCurrent)(Context context);
  int (*cuCtxPopCurrent)(Context* context);
  int (*cuPointerGetAttribute)(void* value, int attribute, DeviceAddress address);
  int (*cuMemGetAddressRange)(DeviceAddress* base, size_t* bytes, DeviceAddress address);
  int (*cuIpcGetMemHandle)(IpcHandle* handle, DeviceAddress base);
  int (*cuIpcOpenMemHandle)(DeviceAddress* base, IpcHandle handle, unsigned flags);
  int (*cuIpcCloseMemHandle)(DeviceAddress base);
  int (*cuMemHostRegister)(void* data, size_t bytes, unsigned flags);
  int (*cuMemHostUnregister)(void* data);
  int (*cuMemHostGetDevicePointer)(DeviceAddress* address, void* data, unsigned flags);
  int (*cuStreamBatchMemOp)(Stream stream, unsigned count, MemoryOp* ops, unsigned flags);
  int (*cuStreamIsCapturing)(Stream stream, int* status);
  int (*cuStreamWaitEvent)(Stream stream, Event event, unsigned flags);
  int (*cuEventCreate)(Event* event, unsigned flags);
  int (*cuEventDestroy)(Event event);
  int (*cuEventRecord)(Event event, Stream stream);
  int (*cuEventSynchronize)(Event event);
  int (*cuModuleLoadData)(Module* module, const void* text);
  int (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  int (*cuLaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        Stream stream, void** parameters, void** extra);
};
// NOLINTEND(readability-identifier-naming)

class Driver {
 public:
  // Opens the driver at the first call. Throws DriverError, now and later, if this machine has none.
  static const Driver& instance();

  // Why there is none; empty if there is one.
  static const std::string& why_none();

  const DriverFunctions& functions() const { return functions_; }

  // Throws DriverError if a function did not return success. `what` was attempted: "map the memory of rank
  // 1".
  void check(int status, std::string_view what) const;

 private:
  Driver();
  static const Driver& opened();

  DriverFunctions functions_ = {};
  std::string why_none_;
};

// A device as this process numbers it, with the context that torch uses on it.
class Device {
 public:
  // Throws DriverError.
  explicit Device(int ordinal);

  const Uuid& uuid() const { return uuid_; }
  int processors() const { return processors_; }
  Context context() const { return context_; }

 private:
  Context context_ = nullptr;
  Uuid uuid_ = {};
  int processors_ = 0;
};

// Makes the context of a device current on this thread while it lives.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Device& device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
};

}  // namespace shardway::cuda
