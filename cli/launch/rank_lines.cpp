#include "cli/launch/rank_lines.h"

#include <unistd.h>

#include <array>
#include <cerrno>

namespace shardway::cli {
namespace {

constexpr size_t kLongestLine = 1 << 16;
constexpr size_t kMostAtOnce = 1 << 16;

}  // namespace

bool RankLines::read_from(const shm::File& from) {
  std::array<char, 1 << 14> buffer{};
  for (size_t bytes = 0; bytes < kMostAtOnce; bytes += buffer.size()) {
    const ssize_t got = read(from.get(), buffer.data(), buffer.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    text_.append(buffer.data(), static_cast<size_t>(got));
    show_whole_lines();
  }
  return true;
}

void RankLines::show_rest() {
  if (!text_.empty()) show(text_, "\n");
  text_.clear();
}

void RankLines::show_whole_lines() {
  size_t begin = 0;
  for (size_t end = 0; (end = text_.find_first_of("\r\n", begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text_).substr(begin, end - begin);
    const bool is_return = text_[end] == '\r';
    if (is_return && text_.compare(end + 1, 1, "\n") == 0) {
      show(line, "\r\n");
      ++end;
    } else if (is_return) {
      if (!line.empty()) show(line, "\r");  // a bar that begins with one has nothing before it
    } else if (line.empty() && is_after_return_) {
      std::fputc('\n', to_);
    } else {
      show(line, "\n");
    }
    is_after_return_ = is_return && text_[end] == '\r' && (!line.empty() || is_after_return_);
  }
  text_.erase(0, begin);
  if (text_.size() >= kLongestLine) show_rest();
  std::fflush(to_);
}

void RankLines::show(std::string_view line, std::string_view end) {
  for (const std::string_view part : {std::string_view(before_), line, end})
    std::fwrite(part.data(), 1, part.size(), to_);
}

}  // namespace shardway::cli
