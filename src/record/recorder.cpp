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
  const TotalsTable& totals() const { return totals_; }

  RecordLine* begin(const CallStart& start) {
    if (record_ == nullptr) return nullptr;
    for (size_t tries = 0; tries < kLines; ++tries) {
      const uint64_t order = next_.fetch_add(1, std::memory_order_relaxed);  // only the number matters
      const size_t at = order % kLines;
      // Acquire: pairs with the release in end(); the line is this thread's, as the last writer left it.
      if (is_taken_[at].exchange(true, std::memory_order_acquire)) continue;
      RecordLine& line = record_->lines[at];
      write(line, order, start);
      begun_ticks_[at] = now_ticks();
      return &line;
    }
    return nullptr;  // all lines are calls under way
  }

  void end(RecordLine& line, CallState state, int64_t waited_ns) {
    const auto at = static_cast<size_t>(&line - record_->lines.data());
    const EndedCall ended{.state = state, .ticks = now_ticks() - begun_ticks_[at], .waited_ns = waited_ns};
    const uint64_t sequence = open(line);
    line.ended_ns.store(now_ns(), std::memory_order_release);  // see open()
    line.state.store(static_cast<uint32_t>(ended.state), std::memory_order_release);
    close(line, sequence);
    const bool is_numbered = line.number.load(std::memory_order_relaxed) != 0;  // else a group was made
    if (is_numbered) totals_.add(line, ended);
    if (is_tracing() || log_level() >= LogLevel::info) tell_of(line, ended);
    is_taken_[at].store(false, std::memory_order_release);
  }

 private:
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

  static void write(RecordLine& line, uint64_t order, const CallStart& start) {
    std::array<uint64_t, kOpBytes / sizeof(uint64_t)> op{};
    std::memcpy(op.data(), start.op, strnlen(start.op, kOpBytes - 1));
    const uint64_t sequence = open(line);
    constexpr auto kRelease = std::memory_order_release;  // see open()
    line.order.store(order, kRelease);
    line.number.store(start.number, kRelease);
    line.group.store(start.group, kRelease);
    line.bytes.store(start.bytes, kRelease);
    line.begun_ns.store(now_ns(), kRelease);
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
  std::array<std::atomic<bool>, kLines> is_taken_{};  // by a call that has not ended
  std::array<uint64_t, kLines> begun_ticks_{};        // of the call in each line, by its thread
  TotalsTable totals_;
};

std::atomic<Recorder*> Recorder::current{nullptr};

// Precise where times are to be seen.
int64_t now_ns() {
  if (is_tracing() || log_level() >= LogLevel::info) return precise_ns();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

OpenCall::OpenCall(const CallStart& start) : recorder_(&Recorder::instance()) {
  line_ = recorder_->begin(start);
}

// A call that was under way at a fork is the parent's.
void OpenCall::end(CallState state) {
  RecordLine* line = std::exchange(line_, nullptr);
  if (recorder_->is_of_this_process()) recorder_->end(*line, state, waited_ns_);
}

std::vector<CallTotals> call_totals() { return Recorder::instance().totals().totals(); }

std::vector<RecordedCall> last_calls() {
  const RecordFile* file = Recorder::instance().file();
  return file == nullptr ? std::vector<RecordedCall>{} : calls_in(*file);
}

}  // namespace shardway::record
