#include "record/flight_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "record/diagnosis.h"
#include "record/own_job.h"
#include "record/pickle.h"
#include "record/recorder.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/job.h"

namespace shardway::record {
namespace {

constexpr const char* kFormat = "2.10";
constexpr const char* kDescription = "shardway";
constexpr int64_t kNsPerMs = 1'000'000;
// A forged record may claim any size.
constexpr int64_t kMostRanks = 1 << 16;

struct OpName {
  std::string_view ours;
  std::string_view torchs;
};

// An op that is not here moves boxes between ranks, as an all-to-all does.
constexpr std::array kOps = {OpName{"all_gather_v", "all_gather_v"},
                             OpName{"reduce_scatter_v", "reduce_scatter_v"},
                             OpName{"gather_sizes", "all_gather"},
                             OpName{"gather_v", "gather"},
                             OpName{"scatter_v", "scatter"},
                             OpName{"mesh_scatter", "scatter"},
                             OpName{"mesh_broadcast", "broadcast"},
                             OpName{"all_reduce", "all_reduce"},
                             OpName{"broadcast", "broadcast"},
                             OpName{"reduce", "reduce"},
                             OpName{"all_gather", "all_gather"},
                             OpName{"gather", "gather"},
                             OpName{"scatter", "scatter"},
                             OpName{"reduce_scatter", "reduce_scatter"},
                             OpName{"barrier", "barrier"}};

std::string_view torchs_name_of(std::string_view op) {
  const auto* found =
      std::find_if(kOps.begin(), kOps.end(), [op](const OpName& name) { return name.ours == op; });
  return found == kOps.end() ? "all_to_all" : found->torchs;
}

// Ranks bring the same number of bytes. The analyser compares sizes, so other ops show none.
bool is_of_one_size(std::string_view op) { return op == "all_reduce" || op == "broadcast"; }

std::string key_text(uint64_t group) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(group));
  return text.data();
}

int64_t largest_group_of(const ProcessRecord& process) {
  int64_t size = 1;
  for (const RecordedCall& call : process.calls) size = std::max(size, call.size);
  return size;
}

class KnownRanks {
 public:
  static KnownRanks& instance() {
    static auto* known = new KnownRanks;  // never destroyed: calls may come after the end of main
    return *known;
  }
  void set(uint64_t group, std::vector<int64_t> ranks) {
    const std::lock_guard lock(mutex_);
    ranks_[group] = std::move(ranks);
  }
  std::vector<int64_t> of(uint64_t group) {
    const std::lock_guard lock(mutex_);
    const auto found = ranks_.find(group);
    return found == ranks_.end() ? std::vector<int64_t>{} : found->second;
  }

 private:
  shm::ForkMutex mutex_;
  std::map<uint64_t, std::vector<int64_t>> ranks_;
};

[[maybe_unused]] const KnownRanks& ranks_at_load = KnownRanks::instance();

// The ranks of a group in the job, by rank in the group. None if one of them is not known.
std::optional<std::vector<int64_t>> job_ranks_of(const RecordedCall& member, const ProcessRecord& process,
                                                 std::span<const ProcessRecord> job) {
  std::vector<int64_t> ranks = KnownRanks::instance().of(member.group);
  if (static_cast<int64_t>(ranks.size()) == member.size) return ranks;
  const int64_t whole = process.is_of_job ? process.size : largest_group_of(process);
  std::map<int64_t, int64_t> found;
  for (const ProcessRecord& other : job) {
    for (const RecordedCall& call : other.calls) {
      if (call.group == member.group && call.size == member.size) found[call.rank] = job_rank_of(other);
    }
  }
  ranks.clear();
  if (member.size > kMostRanks) return std::nullopt;
  const bool is_whole = member.size == whole;
  if (!is_whole && static_cast<int64_t>(found.size()) != member.size) return std::nullopt;
  for (int64_t rank = 0; rank < member.size; ++rank) ranks.push_back(is_whole ? rank : found[rank]);
  return ranks;
}

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

struct FlightGroup {
  std::string name = {};
  int64_t number = 0;  // of the groups of this process
  std::string ranks = {};
  int64_t last_begun = 0;
  int64_t last_done = 0;
};

// Writes one process. Times of the record become times of day.
class FlightWriter {
 public:
  FlightWriter(const ProcessRecord& process, std::span<const ProcessRecord> job) : process_(process) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    to_time_of_day_ = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec - now_ns();
    for (const RecordedCall& call : process.calls) see(call, job);
  }

  std::string written() && {
    out_.begin_dict();
    add("version", kFormat);
    add("comm_lib_version", "");
    write_groups();
    out_.text("entries");
    out_.begin_list();
    for (const RecordedCall& call : process_.calls) {
      const auto group = groups_.find(call.group);
      if (call.number > 0 && group != groups_.end()) write(call, group->second);
    }
    out_.end_list();
    out_.end_dict();
    return std::move(out_).finished();
  }

 private:
  void see(const RecordedCall& call, std::span<const ProcessRecord> job) {
    if (!groups_.contains(call.group)) {
      const auto ranks = job_ranks_of(call, process_, job);
      if (!ranks) return;
      const auto number = static_cast<int64_t>(groups_.size());
      groups_[call.group] = {.name = key_text(call.group), .number = number, .ranks = list_text(*ranks)};
    }
    FlightGroup& group = groups_[call.group];
    const auto number = static_cast<int64_t>(call.number);
    group.last_begun = std::max(group.last_begun, number);
    if (call.state == CallState::done) group.last_done = std::max(group.last_done, number);
  }

  void add(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
  }
  void add(std::string_view key, int64_t value) {
    out_.text(key);
    out_.integer(value);
  }
  void add_flag(std::string_view key, bool value) {
    out_.text(key);
    out_.boolean(value);
  }

  void write_groups() {
    out_.text("pg_config");
    out_.begin_dict();
    for (const auto& [id, group] : groups_) {
      out_.text(group.name);
      out_.begin_dict();
      add("name", group.name);
      add("desc", kDescription);
      add("ranks", group.ranks);
      out_.end_dict();
    }
    out_.end_dict();
    out_.text("pg_status");
    out_.begin_dict();
    for (const auto& [id, group] : groups_) {
      out_.text(std::to_string(group.number));
      out_.begin_dict();
      add("last_enqueued_collective", group.last_begun);
      add("last_started_collective", group.last_begun);
      add("last_completed_collective", group.last_done);
      out_.end_dict();
    }
    out_.end_dict();
  }

  void write(const RecordedCall& call, const FlightGroup& group) {
    const bool is_done = call.state == CallState::done;
    const auto number = static_cast<int64_t>(call.number);
    out_.begin_dict();
    add("record_id", static_cast<int64_t>(call.order));
    add("pg_id", group.number);
    out_.text("process_group");
    out_.text(group.name);
    out_.text(kDescription);
    out_.pair_of_last();
    add("collective_seq_id", number);
    add("p2p_seq_id", int64_t{0});
    add("op_id", number);
    // The analysers of all torch releases know this library; those before 2.15 refuse ours.
    add("profiling_name", "nccl:" + std::string(torchs_name_of(call.op)));
    write_sizes(is_of_one_size(call.op) ? call.bytes : 0);
    write_times(call);
    add("state", is_done ? "completed" : "started");
    add_flag("retired", call.state != CallState::running);
    add("timeout_ms", int64_t{0});
    add_flag("is_p2p", false);
    write_frame(call);
    out_.end_dict();
  }

  void write_sizes(int64_t bytes) {
    for (const char* side : {"input", "output"}) {
      out_.text(std::string(side) + "_sizes");
      out_.begin_list();
      out_.begin_list();
      out_.integer(bytes);
      out_.end_list();
      out_.end_list();
      out_.text(std::string(side) + "_dtypes");
      out_.begin_list();
      out_.text("Byte");
      out_.end_list();
    }
  }

  // Of any number that a record may claim.
  int64_t time_of_day(int64_t ns) const {
    return static_cast<int64_t>(static_cast<uint64_t>(ns) + static_cast<uint64_t>(to_time_of_day_));
  }

  void write_times(const RecordedCall& call) {
    const bool has_ended = call.state != CallState::running;
    add("time_created_ns", time_of_day(call.begun_ns));
    add("time_discovered_started_ns", time_of_day(call.begun_ns));
    out_.text("time_discovered_completed_ns");
    has_ended ? out_.integer(time_of_day(call.ended_ns)) : out_.none();
    out_.text("duration_ms");
    has_ended ? out_.real(static_cast<double>(call.ended_ns - call.begun_ns) / kNsPerMs) : out_.none();
  }

  void write_frame(const RecordedCall& call) {
    out_.text("frames");
    out_.begin_list();
    out_.begin_dict();
    add("name", call.op + ", " + bytes_text(call.bytes));
    add("filename", kDescription);
    add("line", int64_t{0});
    out_.end_dict();
    out_.end_list();
  }

  const ProcessRecord& process_;
  int64_t to_time_of_day_ = 0;
  std::map<uint64_t, FlightGroup> groups_;
  PickleWriter out_;
};

void write_file(const std::string& path, std::string_view bytes) {
  const auto fail = [&] { throw std::system_error(errno, std::generic_category(), path); };
  const shm::File file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) fail();
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

const char* setting(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read, never set here
  return value == nullptr ? "" : value;
}

// Of a process that has made no call.
ProcessRecord empty_record() {
  ProcessRecord record{.pid = getpid()};
  const shm::Job job = shm::job_of_environment();
  record.is_of_job = !job.launcher.empty();
  record.rank = job.rank;
  record.size = job.size;
  return record;
}

}  // namespace

std::string flight_record_prefix() {
  const std::string prefix = setting("TORCH_FR_DUMP_TEMP_FILE");
  return prefix.empty() ? setting("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") : prefix;
}

void know_ranks(uint64_t group, std::vector<int64_t> job_ranks) {
  KnownRanks::instance().set(group, std::move(job_ranks));
}

int64_t job_rank_of(const ProcessRecord& process) {
  if (process.is_of_job) return process.rank;
  const int64_t largest = largest_group_of(process);
  for (const RecordedCall& call : process.calls) {
    if (call.size == largest) return call.rank;
  }
  return 0;
}

std::string flight_record_of(const ProcessRecord& process, std::span<const ProcessRecord> job) {
  return FlightWriter(process, job).written();
}

std::string write_flight_record(const std::string& prefix, const ProcessRecord& process,
                                std::span<const ProcessRecord> job) {
  std::string path = prefix + std::to_string(job_rank_of(process));
  write_file(path, flight_record_of(process, job));
  return path;
}

std::string write_own_flight_record(const std::string& prefix) {
  const std::vector<ProcessRecord> job = records_of_own_job();
  const auto own = std::find_if(job.begin(), job.end(),
                                [](const ProcessRecord& record) { return record.pid == getpid(); });
  return write_flight_record(prefix, own == job.end() ? empty_record() : *own, job);
}

}  // namespace shardway::record
