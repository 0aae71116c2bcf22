#include "cli/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace shardway::cli {
namespace {

[[noreturn]] void refuse(const std::string& path) {
  throw std::invalid_argument(path + ": cannot be written: " + std::strerror(errno));
}

// A file that is open for writing, closed at the end.
class OpenFile {
 public:
  OpenFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {
    if (descriptor_ < 0) refuse(path_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  bool write(const std::string& text) const {
    for (size_t done = 0; done < text.size();) {
      const ssize_t wrote = ::write(descriptor_, text.data() + done, text.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return false;
      done += static_cast<size_t>(wrote);
    }
    return true;
  }

  bool allow_as_usual() const {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return ::fchmod(descriptor_, 0666 & ~mask) == 0;
  }

  bool close() { return ::close(std::exchange(descriptor_, -1)) == 0; }

 private:
  int descriptor_;
  std::string path_;
};

// Where the file really lies.
std::string target_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  return error ? path : resolved.string();
}

bool is_written_directly(const std::string& target) {
  std::error_code error;
  return std::filesystem::exists(target, error) && !std::filesystem::is_regular_file(target, error);
}

}  // namespace

void refuse_unwritable(const std::string& path) {
  const std::string target = target_of(path);
  if (is_written_directly(target)) {
    const OpenFile file(::open(target.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK), path);
    return;
  }
  std::string temporary = target + ".XXXXXX";
  const OpenFile file(::mkostemp(temporary.data(), O_CLOEXEC), path);
  ::unlink(temporary.c_str());
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string target = target_of(path);
  if (is_written_directly(target)) {
    if (!OpenFile(::open(target.c_str(), O_WRONLY | O_CLOEXEC), path).write(text)) refuse(path);
    return;
  }
  std::string temporary = target + ".XXXXXX";
  OpenFile file(::mkostemp(temporary.data(), O_CLOEXEC), path);
  const bool is_complete = file.write(text) && file.allow_as_usual() && file.close() &&
                           std::rename(temporary.c_str(), target.c_str()) == 0;
  if (is_complete) return;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  refuse(path);
}

}  // namespace shardway::cli
