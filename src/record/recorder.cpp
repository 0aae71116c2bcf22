#include "record/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "record/call_totals.h"
#include "record/diagnosis.h"
#include "record/log.h"
#include "record/reader.h"
#include "record/recorded_line.h"
#include "record/trace.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/job.h"
#include "shm/memory/process.h"

namespace shardway::record {
namespace {

template <size_t bytes>
void put(std::array<char, bytes>& to, std::string_view text) {
  text.copy(to.data(), bytes - 1);
}

void describe_job(RecordHead& head) {
  try {
    const shm::Job job = shm::job_of_environment();
    if (job.launcher.empty()) return;
    head.is_of_job = 1;
    head.rank = job.rank;
    head.size = job.size;
    put(head.job, std::string_view(job.name).substr(0, job.name.find_last_not_of(' ') + 1));
    put(head.launcher, job.launcher);
  } catch (const std::exception&) {  // an environment that makes no sense is said where it matters, in join
  }
}

shm::ForkMutex& recorder_making() {
  static auto* mutex = new shm::ForkMutex;  // never destroyed: a call may come after the end of main
  return *mutex;
}

[[maybe_unused]] const shm::ForkMutex& recorder_making_at_load = recorder_making();

// Finer than duration_text.
std::string time_text(int64_t ns) {
  return ns < 1'000'000 ? std::to_string(ns / 1000) + " us" : duration_text(ns);
}

// "rank 0 of 4 of group 3fa2c1: all_gather_v (call 17, 64 B) done after 12 us, of which it waited 3 us"
std::string words_of(const RecordedCall& call, const EndedCall& ended) {
  const std::string waited =
      ended.waited_ns > 0 ? ", of which it waited " + time_text(ended.waited_ns) : std::string();
  return "rank " + std::to_string(call.rank) + " of " + std::to_string(call.size) + " of group " +
         group_text(call.group) + ": " + call.op + " (call " + std::to_string(call.number) + ", " +
         bytes_text(call.bytes) + ") " + name_of(call.state) + " after " +
         time_text(call.ended_ns - call.begun_ns) + waited;
}

}  // namespace

class Recorder {
 public:
  // Makes the file, or does without. A library must not fail because nobody can watch it.
  Recorder() : generation_(shm::fork_generation()) {
    try {
      file_ = shm::new_memory_file(kFileName);
      shm::set_size(file_, sizeof(RecordFile));
      mapping_ = shm::Mapping(file_, sizeof(RecordFile), shm::Mapping::Access::write);
      auto* made = new (mapping_.data()) RecordFile{};
      made->head.version = kVersion;
      made->head.pid = getpid();
      describe_job(made->head);
      made->head.memory = {.nonce = kMagic, .size = sizeof(RecordFile)};
      shm::seal(file_, shm::Writers::those_there_are);
      record_ = made;
    } catch (const std::exception&) {
      file_ = shm::File();
    }
  }

  // That of this process; a child of fork makes its own.
  static Recorder& instance() {
    // Acquire: pairs with the release below; what the constructor wrote is there.
    Recorder* known = current.load(std::memory_order_acquire);
    if (known != nullptr && known->is_of_this_process()) return *known;
    return make();
  }

  bool is_of_this_process() const { return generation_ == shm::fork_generation(); }

  const RecordFile* file() const { return record_; }

  // Those of all calls that have ended.
  std::vector<CallTotals> totals() {
    for (size_t at = 0; at < kLines; ++at) {
      LineUse expected = LineUse::ended;
      // Acquire: pairs with the release in end().
      if (!uses_[at].compare_exchange_strong(expected, LineUse::taken, std::memory_order_acquire)) continue;
      count(at);
      uses_[at].store(LineUse::free, std::memory_order_release);  // pairs with the acquire in begin()
    }
    return totals_.totals();
  }

  RecordLine* begin(const CallStart& start, int64_t begun_ns) {
    if (record_ == nullptr) return nullptr;
    for (size_t tries = 0; tries < kLines; ++tries) {
      const uint64_t order = next_.fetch_add(1, std::memory_order_relaxed);  // only the number matters
      const size_t at = order % kLines;
      // Acquire: pairs with the release in end(); the line is this thread's, as the last writer left it.
      const LineUse before = uses_[at].exchange(LineUse::taken, std::memory_order_acquire);
      if (before == LineUse::taken) continue;
      if (before == LineUse::ended) count(at);
      RecordLine& line = record_->lines[at];
      write(line, order, start, begun_ns);
      return &line;
    }
    return nullptr;  // all lines are calls under way
  }

  // Nobody waits for the sums: whoever takes the line next adds the call to them, or who asks for them.
  void end(RecordLine& line, const EndedCall& ended) {
    const auto at = static_cast<size_t>(&line - record_->lines.data());
    ended_[at] = ended;
    const uint64_t sequence = open(line);
    line.ended_ns.store(now_ns(), std::memory_order_release);  // see open()
    line.state.store(static_cast<uint32_t>(ended.state), std::memory_order_release);
    close(line, sequence);
    if (shows_times()) tell_of(line, ended);
    uses_[at].store(LineUse::ended, std::memory_order_release);
  }

 private:
  enum class LineUse : uint8_t {
    free,   // its call, if it had one, is in the sums
    taken,  // by a call that has not ended, or by a thread that adds its call to the sums
    ended   // its call is not in the sums yet
  };

  // Adds the call of a line that this thread has taken to the sums.
  void count(size_t at) {
    const RecordLine& line = record_->lines[at];
    const bool is_numbered = line.number.load(std::memory_order_relaxed) != 0;  // else a group was made
    if (is_numbered) totals_.add(line, ended_[at]);
  }

  static Recorder& make() {
    const std::lock_guard lock(recorder_making());
    Recorder* known = current.load(std::memory_order_relaxed);
    if (known != nullptr && known->is_of_this_process()) return *known;
    if (known != nullptr) known->file_ = shm::File();  // the parent's, which keeps its own descriptor
    auto* made = new Recorder;                         // never destroyed: as above
    current.store(made, std::memory_order_release);
    return *made;
  }

  // Makes the number odd. Every field is then stored with release, so none is seen before the odd number: a
  // reader, which loads the fields with acquire, sees that number or a later one in its second look.
  static uint64_t open(RecordLine& line) {
    const uint64_t sequence = line.sequence.load(std::memory_order_relaxed);  // this thread's alone
    line.sequence.store(sequence + 1, std::memory_order_relaxed);
    return sequence;
  }

  // Release: pairs with the acquire of the reader's first look; the fields are there.
  static void close(RecordLine& line, uint64_t sequence) {
    line.sequence.store(sequence + 2, std::memory_order_release);
  }

  static void write(RecordLine& line, uint64_t order, const CallStart& start, int64_t begun_ns) {
    std::array<uint64_t, kOpBytes / sizeof(uint64_t)> op{};
    std::memcpy(op.data(), start.op, strnlen(start.op, kOpBytes - 1));
    const uint64_t sequence = open(line);
    constexpr auto kRelease = std::memory_order_release;  // see open()
    line.order.store(order, kRelease);
    line.number.store(start.number, kRelease);
    line.group.store(start.group, kRelease);
    line.bytes.store(start.bytes, kRelease);
    line.begun_ns.store(begun_ns, kRelease);
    line.ended_ns.store(0, kRelease);
    line.rank.store(static_cast<int32_t>(start.rank), kRelease);
    line.size.store(static_cast<int32_t>(start.size), kRelease);
    line.state.store(static_cast<uint32_t>(CallState::running), kRelease);
    line.may_span_hosts.store(start.may_span_hosts ? 1 : 0, kRelease);
    for (size_t word = 0; word < op.size(); ++word) line.op[word].store(op[word], kRelease);
    close(line, sequence);
  }

  // A call must not fail because there is no memory to tell of it.
  static void tell_of(const RecordLine& line, const EndedCall& ended) {
    try {
      const auto call = call_in(line);
      if (!call) return;
      if (is_tracing()) add_to_trace(*call);
      const bool is_special = call->number == 0 || ended.state == CallState::failed;
      if (log_level() == LogLevel::debug || (log_level() == LogLevel::info && is_special))
        print_lines(words_of(*call, ended));
    } catch (const std::exception&) {
    }
  }

  static std::atomic<Recorder*> current;

  uint64_t generation_;
  shm::File file_;
  shm::Mapping mapping_;
  RecordFile* record_ = nullptr;
  alignas(64) std::atomic<uint64_t> next_{0};
  std::array<std::atomic<LineUse>, kLines> uses_{};
  std::array<EndedCall, kLines> ended_{};  // of the call in each line; written by who has taken the line
  TotalsTable totals_;
};

std::atomic<Recorder*> Recorder::current{nullptr};

bool shows_times() { return is_tracing() || log_level() >= LogLevel::info; }

int64_t now_ns() {
  if (shows_times()) return precise_ns();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void BegunCall::open() {
  recorder_ = &Recorder::instance();
  line_ = recorder_->begin(start_, begun_ns_ != 0 ? begun_ns_ : now_ns());
}

// A call that was under way at a fork is the parent's.
void BegunCall::end(CallState state) {
  if (recorder_ == nullptr) open();
  RecordLine* line = std::exchange(line_, nullptr);
  if (line == nullptr || !recorder_->is_of_this_process()) return;
  recorder_->end(*line, {.state = state, .ticks = now_ticks() - begun_ticks_, .waited_ns = waited_ns_});
}

std::vector<CallTotals> call_totals() { return Recorder::instance().totals(); }

std::vector<RecordedCall> last_calls() {
  const RecordFile* file = Recorder::instance().file();
  return file == nullptr ? std::vector<RecordedCall>{} : calls_in(*file);
}

}  // namespace shardway::record
