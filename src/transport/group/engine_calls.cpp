#include "transport/group/engine_calls.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "record/flight_record.h"
#include "record/loss.h"
#include "shm/board/subject.h"
#include "shm/memory/fork_mutex.h"
#include "shm/memory/job.h"

namespace shardway {
namespace {

// What the environment says; nothing where it makes no sense.
shm::Job job_of_process() {
  try {
    return shm::job_of_environment();
  } catch (const std::invalid_argument&) {
    return {};
  }
}

// Where the ranks of the group met: the same on all of them, and another for any other job that runs now.
std::string meeting_place_of(c10d::ProcessGroup& group) {
  c10::intrusive_ptr<c10d::Store> store = group.getStore();
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get()))
    store = prefixed->getUnderlyingNonPrefixStore();
  if (const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get()))
    return c10::str(tcp->getHost(), ":", tcp->getPort());
  if (const auto* file = dynamic_cast<c10d::FileStore*>(store.get())) return file->getPath();
  const shm::Job job = job_of_process();
  return job.launcher.empty() ? c10::str("session ", getsid(0)) : job.name;
}

// Empty for a group written in Python that has none.
std::string name_of_group(const c10d::ProcessGroup& group) {
  try {
    return group.getGroupName();
  } catch (const std::exception&) {
    return "";
  }
}

// How many groups of a name the rank has made: torch gives a name again once its group is destroyed.
struct NameCounts {
  shm::ForkMutex mutex;
  std::map<std::string, uint64_t> counts;

  static NameCounts& instance() {
    static auto* made = new NameCounts;  // never destroyed: groups may be made until the end
    return *made;
  }
};

[[maybe_unused]] const NameCounts& names_at_load = NameCounts::instance();

uint64_t next_of_name(const std::string& name) {
  NameCounts& names = NameCounts::instance();
  const std::lock_guard lock(names.mutex);
  return ++names.counts[name];
}

// Found without a word to the others: a call that hangs must be in the record before it has reached anybody.
uint64_t id_of(c10d::ProcessGroup& group) {
  const std::string name = c10::str(meeting_place_of(group), " ", name_of_group(group));
  return shm::mark_of(name, next_of_name(c10::str(name, " ", group.getRank())));  // ranks may be threads
}

bool is_all_on_this_host(const shm::Job& job) { return job.local_size && *job.local_size == job.size; }

std::string without_end(std::string text, const std::string& end) {
  if (text.ends_with(end)) text.resize(text.size() - end.size());
  return text;
}

}  // namespace

class EngineCalls::RecordedTransfer : public Transfer {
 public:
  RecordedTransfer(std::shared_ptr<EngineCalls> calls, const record::CallStart& start)
      : calls_(std::move(calls)), call_(start) {}

  void begin(const std::function<std::unique_ptr<Transfer>()>& body) {
    calls_->watch([&] { transfer_ = body(); });
  }

  void finish() override {
    calls_->watch([&] { transfer_->finish(); });
    call_.done();
  }
  bool is_over() override { return transfer_->is_over(); }

 private:
  std::shared_ptr<EngineCalls> calls_;
  record::OpenCall call_;
  std::unique_ptr<Transfer> transfer_;
};

EngineCalls::EngineCalls(c10d::ProcessGroup& group, std::vector<int64_t> global_ranks)
    : rank_(group.getRank()), size_(group.getSize()), id_(id_of(group)) {
  may_span_hosts_ = !is_all_on_this_host(job_of_process());
  if (!global_ranks.empty()) record::know_ranks(id_, std::move(global_ranks));
}

void EngineCalls::know_hosts(std::vector<int64_t> elsewhere) {
  elsewhere_ = std::move(elsewhere);
  may_span_hosts_ = !elsewhere_.empty();
}

record::CallStart EngineCalls::start_of(const char* op, uint64_t number, int64_t bytes) const {
  return {.op = op,
          .number = number,
          .group = id_,
          .rank = rank_,
          .size = size_,
          .bytes = bytes,
          .may_span_hosts = may_span_hosts_};
}

void EngineCalls::join(const std::function<void()>& body) {
  record::OpenCall call(start_of("join", 0, 0));
  watch(body);
  call.done();
}

void EngineCalls::run(const char* op, int64_t bytes, const std::function<void()>& body) {
  record::OpenCall call(start_of(op, ++calls_, bytes));
  watch(body);
  call.done();
}

std::unique_ptr<Transfer> EngineCalls::start(const char* op, int64_t bytes,
                                             const std::function<std::unique_ptr<Transfer>()>& body) {
  auto transfer = std::make_unique<RecordedTransfer>(shared_from_this(), start_of(op, ++calls_, bytes));
  transfer->begin(body);
  return transfer;
}

void EngineCalls::watch(const std::function<void()>& body) {
  try {
    body();
  } catch (const c10::DistBackendError& error) {
    report(error.what_without_backtrace());
    throw;
  }
}

void EngineCalls::report(const std::string& why) {
  if (has_reported_.exchange(true)) return;
  try {
    record::report_loss(without_end(why, c10::str(" (rank ", rank_, ")")), rank_,
                        record::view_from_here(id_, size_, elsewhere_));
  } catch (const std::exception&) {  // the loss itself is what the caller has to hear
  }
}

}  // namespace shardway
