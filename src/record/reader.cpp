#include "record/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "record/recorded_line.h"

namespace shardway::record {
namespace {

constexpr int kLooks = 100;
constexpr int64_t kMostRanks = int64_t{1} << 20;

// Up to the zero, with a question mark for what a terminal should not see. Nothing without a zero.
std::optional<std::string> text_in(const char* bytes, size_t size) {
  const size_t length = strnlen(bytes, size);
  if (length == size) return std::nullopt;
  std::string text(bytes, length);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

bool is_rank(int64_t rank, int64_t size) {
  return size >= 1 && size <= kMostRanks && rank >= 0 && rank < size;
}

// The fields of a line as they were at one moment, not checked yet.
struct LineCopy {
  RecordedCall call;
  uint32_t state = 0;
  std::array<uint64_t, kOpBytes / sizeof(uint64_t)> op = {};
};

std::optional<LineCopy> copied(const RecordLine& line) {
  // Pairs with the release of the fields (Recorder::open): who has read a new field reads another number in
  // the second look, which cannot come before.
  constexpr auto kAcquire = std::memory_order_acquire;
  for (int look = 0; look < kLooks; ++look) {
    // Acquire: pairs with the release in Recorder::close.
    const uint64_t before = line.sequence.load(std::memory_order_acquire);
    if (before == 0) return std::nullopt;
    if (before % 2 != 0) continue;
    LineCopy copy;
    copy.call = {.order = line.order.load(kAcquire),
                 .number = line.number.load(kAcquire),
                 .group = line.group.load(kAcquire),
                 .rank = line.rank.load(kAcquire),
                 .size = line.size.load(kAcquire),
                 .bytes = line.bytes.load(kAcquire),
                 .begun_ns = line.begun_ns.load(kAcquire),
                 .ended_ns = line.ended_ns.load(kAcquire),
                 .may_span_hosts = line.may_span_hosts.load(kAcquire) != 0};
    copy.state = line.state.load(kAcquire);
    for (size_t word = 0; word < copy.op.size(); ++word) copy.op[word] = line.op[word].load(kAcquire);
    if (line.sequence.load(std::memory_order_relaxed) == before) return copy;
  }
  return std::nullopt;
}

}  // namespace

std::optional<RecordedCall> call_in(const RecordLine& line) {
  const std::optional<LineCopy> copy = copied(line);
  if (!copy || copy->state > static_cast<uint32_t>(CallState::failed)) return std::nullopt;
  RecordedCall call = copy->call;
  call.state = static_cast<CallState>(copy->state);
  const auto op = text_in(reinterpret_cast<const char*>(copy->op.data()), kOpBytes);
  if (!op || !is_rank(call.rank, call.size) || call.bytes < 0 || call.begun_ns < 0 || call.ended_ns < 0)
    return std::nullopt;
  call.op = *op;
  return call;
}

namespace {

std::string folder_of(int64_t pid) { return "/proc/" + std::to_string(pid); }

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The number by which the process knows itself: the last one of the line "NSpid:", which has one for every
// namespace around it.
int64_t own_number_of(int64_t pid) {
  std::istringstream lines(read_text(folder_of(pid) + "/status"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("NSpid:")) continue;
    int64_t number = pid;
    std::istringstream numbers(line.substr(6));
    while (numbers >> number) {
    }
    return number;
  }
  return pid;
}

// The numbers that are names in a folder of /proc.
std::vector<int64_t> numbers_in(const std::string& path) {
  std::vector<int64_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), closedir);
  while (const dirent* entry = folder ? readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

bool is_named_as_record(const std::string& link) {
  static const std::string expected = std::string("/memfd:") + kFileName + " (deleted)";
  std::array<char, 64> target{};
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<size_t>(length)) == expected;
}

}  // namespace

std::vector<RecordedCall> calls_in(const RecordFile& file) {
  std::vector<RecordedCall> calls;
  for (const RecordLine& line : file.lines) {
    if (auto call = call_in(line)) calls.push_back(std::move(*call));
  }
  std::sort(calls.begin(), calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.order < b.order; });
  return calls;
}

std::optional<ProcessRecord> record_in(const shm::File& file) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_size != sizeof(RecordFile)) return std::nullopt;
  shm::Mapping mapping;
  try {
    mapping = shm::map_of_peer(file, shm::Mapping::Access::read, kMagic);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  const auto& mapped = *reinterpret_cast<const RecordFile*>(mapping.data());
  RecordHead head{};
  std::memcpy(&head, &mapped.head, sizeof(head));
  const auto job = text_in(head.job.data(), head.job.size());
  const auto launcher = text_in(head.launcher.data(), head.launcher.size());
  const bool is_of_job = head.is_of_job != 0;
  if (head.version != kVersion || !job || !launcher || (is_of_job && !is_rank(head.rank, head.size)))
    return std::nullopt;
  return ProcessRecord{.pid = head.pid,
                       .is_of_job = is_of_job,
                       .rank = head.rank,
                       .size = head.size,
                       .job = *job,
                       .launcher = *launcher,
                       .calls = calls_in(mapped)};
}

std::optional<ProcessRecord> record_of(int64_t pid) {
  const std::string folder = folder_of(pid) + "/fd";
  for (const int64_t number : numbers_in(folder)) {
    const std::string link = folder + "/" + std::to_string(number);
    if (!is_named_as_record(link)) continue;
    const shm::File file(open(link.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    auto record = file ? record_in(file) : std::nullopt;
    if (!record || record->pid != own_number_of(pid)) continue;
    record->pid = pid;
    record->state = state_of(pid);
    return record;
  }
  return std::nullopt;
}

std::vector<ProcessRecord> all_records() {
  std::vector<ProcessRecord> records;
  for (const int64_t pid : numbers_in("/proc")) {
    struct stat status {};
    if (stat(folder_of(pid).c_str(), &status) != 0 || status.st_uid != geteuid()) continue;
    if (auto record = record_of(pid)) records.push_back(std::move(*record));
  }
  return records;
}

}  // namespace shardway::record
