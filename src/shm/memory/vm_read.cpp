#include "shm/memory/vm_read.h"

#include <sys/uio.h>

#include <cerrno>

namespace shardway::shm {

int vm_read(pid_t process, uint64_t address, std::byte* to, int64_t bytes) {
  while (bytes > 0) {
    const iovec local{.iov_base = to, .iov_len = static_cast<size_t>(bytes)};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of another process
    const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = static_cast<size_t>(bytes)};
    const ssize_t copied = process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0) return errno;
    if (copied == 0) return EFAULT;
    to += copied;
    address += static_cast<uint64_t>(copied);
    bytes -= copied;
  }
  return 0;
}

}  // namespace shardway::shm
