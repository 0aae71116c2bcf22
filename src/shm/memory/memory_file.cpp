#include "shm/memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include "shm/memory/raise_error.h"

// Newer than some C libraries' headers; kernels have it since 5.1.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace shardway::shm {
namespace {

constexpr decltype(statfs::f_type) kTmpfs = 0x01021994;  // from linux/magic.h
constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Nonce random_nonce() {
  Nonce nonce{};
  if (getrandom(nonce.data(), sizeof(nonce), 0) != sizeof(nonce)) raise_error("getrandom");
  return nonce;
}

std::string text_of(const Nonce& nonce) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(nonce[0]),
                static_cast<unsigned long long>(nonce[1]));
  return text.data();
}

Mapping::Mapping(const File& file, int64_t bytes, Access access) : bytes_(bytes) {
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data =
      mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) raise_error("mmap of shared memory");
  data_ = static_cast<std::byte*>(data);
  madvise(data, static_cast<size_t>(bytes), MADV_DONTDUMP);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

File new_memory_file(const char* name) {
  File file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) raise_error("memfd_create");
  return file;
}

// Past the file size limit, ftruncate would raise a signal that ends the process.
void set_size(const File& file, int64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes)) {
    errno = EFBIG;
    raise_error("the size of shared memory exceeds the limit on file sizes (ulimit -f)");
  }
  if (ftruncate(file.get(), bytes) != 0) raise_error("ftruncate of shared memory");
}

void seal(const File& file, Writers writers) {
  const int against_writing = writers == Writers::those_there_are ? F_SEAL_FUTURE_WRITE : 0;
  if (fcntl(file.get(), F_ADD_SEALS, kFixedSize | F_SEAL_SEAL | against_writing) != 0)
    raise_error("the system cannot seal shared memory, which takes Linux 5.1");
}

Mapping map_of_peer(const File& file, Mapping::Access access, const Nonce& expected) {
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kFixedSize) != kFixedSize) throw std::runtime_error("its memory could shrink");
  struct statfs system {};
  if (fstatfs(file.get(), &system) != 0) raise_error("fstatfs of shared memory");
  if (system.f_type != kTmpfs) throw std::runtime_error("its memory is not ordinary memory");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) raise_error("fstat of shared memory");
  if (status.st_size < static_cast<int64_t>(sizeof(MemoryHead)))
    throw std::runtime_error("its memory is empty");
  Mapping mapping(file, status.st_size, access);
  if (mapping.head().nonce != expected)
    throw std::runtime_error("the memory is another's: " + text_of(expected) + " was expected in it, " +
                             text_of(mapping.head().nonce) + " was found");
  return mapping;
}

}  // namespace shardway::shm
