#include "cli/doctor/kernel_lines.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <system_error>

#include "shm/memory/memory_file.h"
#include "shm/memory/process.h"

namespace shardway::cli {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

DoctorLine tried(const char* subject, const char* works, const char* advice,
                 const std::function<void()>& attempt) {
  try {
    attempt();
    return {.subject = subject, .what = works};
  } catch (const std::exception& error) {
    return {.subject = subject, .health = Health::broken, .what = error.what(), .advice = advice};
  }
}

void try_memory_file() {
  constexpr int64_t kBytes = 4096;
  const shm::File file = shm::new_memory_file();
  shm::set_size(file, kBytes);
  const shm::Mapping mine(file, kBytes, shm::Mapping::Access::write);
  const shm::Mapping theirs(file, kBytes, shm::Mapping::Access::read);
  mine.data()[kBytes - 1] = std::byte{42};
  if (theirs.data()[kBytes - 1] != std::byte{42})
    throw std::runtime_error("a second mapping shows other bytes");
  shm::seal(file, shm::Writers::those_there_are);
}

void try_process_handle() {
  if (shm::has_ended(shm::handle_of_process()))
    throw std::runtime_error("this process's handle says that it ended");
}

// One end of a connection over a socket without a name in the file system, as ranks meet.
void try_abstract_socket() {
  const shm::File listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) fail("socket(AF_UNIX)");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The kernel chooses an abstract name where none is given.
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t)) != 0) fail("bind");
  socklen_t length = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname");
  if (listen(listener.get(), 1) != 0) fail("listen");
  const shm::File caller(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(caller.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) fail("connect");
}

}  // namespace

DoctorLines kernel_lines() {
  return {tried("memory files", "memfd_create, sealing and two mappings work",
                "shared memory needs Linux 5.1 and memfd_create: look at the container's seccomp profile",
                try_memory_file),
          tried("process handles", "pidfd_open works: the death of a rank is noticed at once",
                "shared memory needs Linux 5.3 and pidfd_open: look at the container's seccomp profile",
                try_process_handle),
          tried("sockets", "ranks of this host can meet at a Unix socket",
                "shared memory needs Unix sockets with abstract names: look at the sandbox's rules",
                try_abstract_socket)};
}

}  // namespace shardway::cli
