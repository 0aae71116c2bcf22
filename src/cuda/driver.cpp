#include "cuda/driver.h"

#include <dlfcn.h>

#include <string_view>

namespace shardway::cuda {
namespace {

constexpr int kProcessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

// Fills in one function: the first of these names that the driver has. Returns the first name if it has none.
template <class F>
std::string find(void* library, F& function, const char* name, const char* older = nullptr) {
  void* found = dlsym(library, name);
  if (found == nullptr && older != nullptr) found = dlsym(library, older);
  function = reinterpret_cast<F>(found);
  return found != nullptr ? std::string() : std::string(name);
}

// Returns the name of a function that the driver lacks; empty if it has all.
std::string find_all(void* library, DriverFunctions& f) {
  for (const std::string& missing :
       {find(library, f.cuInit, "cuInit"),
        find(library, f.cuGetErrorName, "cuGetErrorName"),
        find(library, f.cuGetErrorString, "cuGetErrorString"),
        find(library, f.cuDeviceGet, "cuDeviceGet"),
        find(library, f.cuDeviceGetAttribute, "cuDeviceGetAttribute"),
        find(library, f.cuDeviceGetUuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"),
        find(library, f.cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
        find(library, f.cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
        find(library, f.cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
        find(library, f.cuPointerGetAttribute, "cuPointerGetAttribute"),
        find(library, f.cuMemGetAddressRange, "cuMemGetAddressRange_v2"),
        find(library, f.cuIpcGetMemHandle, "cuIpcGetMemHandle"),
        find(library, f.cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2"),
        find(library, f.cuIpcCloseMemHandle, "cuIpcCloseMemHandle"),
        find(library, f.cuMemHostRegister, "cuMemHostRegister_v2"),
        find(library, f.cuMemHostUnregister, "cuMemHostUnregister"),
        find(library, f.cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2"),
        find(library, f.cuStreamBatchMemOp, "cuStreamBatchMemOp_v2", "cuStreamBatchMemOp"),
        find(library, f.cuStreamIsCapturing, "cuStreamIsCapturing"),
        find(library, f.cuStreamWaitEvent, "cuStreamWaitEvent"),
        find(library, f.cuEventCreate, "cuEventCreate"),
        find(library, f.cuEventDestroy, "cuEventDestroy_v2"),
        find(library, f.cuEventRecord, "cuEventRecord"),
        find(library, f.cuEventSynchronize, "cuEventSynchronize"),
        find(library, f.cuModuleLoadData, "cuModuleLoadData"),
        find(library, f.cuModuleGetFunction, "cuModuleGetFunction"),
        find(library, f.cuLaunchKernel, "cuLaunchKernel")}) {
    if (!missing.empty()) return missing;
  }
  return {};
}

}  // namespace

std::string text_of(const Uuid& uuid) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU";
  for (size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Driver::Driver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads
  if (library == nullptr) {
    why_none_ = "this machine has no CUDA driver (libcuda.so.1 is not found)";
    return;
  }
  if (const std::string missing = find_all(library, functions_); !missing.empty()) {
    why_none_ = "the CUDA driver is too old: it has no function " + missing;
    return;
  }
  try {
    check(functions_.cuInit(0), "start the driver");
  } catch (const DriverError& error) {
    why_none_ = error.what();
  }
}

const Driver& Driver::opened() {
  static const Driver driver;
  return driver;
}

const std::string& Driver::why_none() { return opened().why_none_; }

const Driver& Driver::instance() {
  if (!why_none().empty()) throw DriverError(why_none());
  return opened();
}

void Driver::check(int status, std::string_view what) const {
  if (status == 0) return;
  const char* name = nullptr;
  const char* text = nullptr;
  functions_.cuGetErrorName(status, &name);
  functions_.cuGetErrorString(status, &text);
  throw DriverError("the CUDA driver could not " + std::string(what) + ": " +
                    (text != nullptr ? text : "unknown error") + " (" +
                    (name != nullptr ? name : std::to_string(status)) + ")");
}

Device::Device(int ordinal) {
  const Driver& driver = Driver::instance();
  const DriverFunctions& cu = driver.functions();
  int device = 0;
  const std::string words = "GPU " + std::to_string(ordinal);
  driver.check(cu.cuDeviceGet(&device, ordinal), "find " + words);
  driver.check(cu.cuDeviceGetUuid(&uuid_, device), "read the UUID of " + words);
  driver.check(cu.cuDeviceGetAttribute(&processors_, kProcessorCount, device),
               "count the processors of " + words);
  driver.check(cu.cuDevicePrimaryCtxRetain(&context_, device), "open " + words);
}

CurrentDevice::CurrentDevice(const Device& device) {
  const Driver& driver = Driver::instance();
  driver.check(driver.functions().cuCtxPushCurrent(device.context()), "make a GPU current");
}

CurrentDevice::~CurrentDevice() {
  Context ours = nullptr;
  Driver::instance().functions().cuCtxPopCurrent(&ours);
}

}  // namespace shardway::cuda
