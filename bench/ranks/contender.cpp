#include "ranks/contender.h"

#include <sys/resource.h>

#include <deque>
#include <exception>
#include <fstream>
#include <stdexcept>

namespace shardway::bench {
namespace {

constexpr size_t kOutputsAlive = 3;
constexpr int64_t kWarmUps = 1;  // calls at the start of a turn that are not counted

rusage usage_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage;
}

struct Stamp {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t faults = 0;
  int64_t interruptions = 0;  // how often another program took the core
};

std::string to_string(const Stamp& stamp) {
  std::string text;
  for (const int64_t value : {stamp.start_ns, stamp.end_ns, stamp.faults, stamp.interruptions}) {
    text += (text.empty() ? "" : ":") + std::to_string(value);
  }
  return text;
}

// The memory of one task, and its calls.
class Turn {
 public:
  Turn(Contender& contender, Meeting& meeting, const Task& task)
      : contender_(contender), meeting_(meeting), task_(task), rank_(meeting.rank()) {
    x_ = contender.input(task, contender.input_elements(task, rank_));
    if (task.output == Output::given) out_ = contender.output(task, contender.output_elements(task, rank_));
  }
  ~Turn() {
    keep_at_most(0);
    contender_.release(out_);
    contender_.release(x_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  Stamp call(int64_t number) {
    if (task_.output == Output::first) {
      keep_at_most(0);
      contender_.drop_caches();
    }
    rewrite(number);
    const rusage before = usage_of_this_thread();
    meeting_.start_together();
    const int64_t start = now_ns();
    float* result = contender_.call(task_, x_, out_);
    const int64_t end = now_ns();
    const rusage after = usage_of_this_thread();
    latest_ = result;
    if (out_ == nullptr) kept_.push_back(result);
    meeting_.meet([this] { contender_.progress(); });  // nobody rewrites what a slower rank still reads
    keep_at_most(kOutputsAlive);
    return {start, end, after.ru_minflt - before.ru_minflt, after.ru_nivcsw - before.ru_nivcsw};
  }

  void check(int64_t number) const {
    const int64_t count = contender_.output_elements(task_, rank_);
    for (int64_t i = 0; i < count; ++i) {
      if (latest_[i] == contender_.expected(task_, rank_, i, number)) continue;
      throw std::runtime_error("element " + std::to_string(i) + " of the output is " +
                               std::to_string(latest_[i]) + " and should be " +
                               std::to_string(contender_.expected(task_, rank_, i, number)));
    }
  }

 private:
  void rewrite(int64_t number) {
    const int64_t count = contender_.input_elements(task_, rank_);
    for (int64_t i = 0; i < count; ++i) x_[i] = element(rank_, i, number);
  }

  void keep_at_most(size_t outputs) {
    while (kept_.size() > outputs) {
      contender_.release(kept_.front());
      kept_.pop_front();
    }
  }

  Contender& contender_;
  Meeting& meeting_;
  const Task& task_;
  int64_t rank_;
  float* x_ = nullptr;
  float* out_ = nullptr;
  float* latest_ = nullptr;
  std::deque<float*> kept_;
};

std::string run(Contender& contender, Meeting& meeting, const Task& task) {
  if (task.ranks() != meeting.ranks()) throw std::invalid_argument("a task needs one size per rank");
  Turn turn(contender, meeting, task);
  const auto warm_ups = task.output == Output::steady ? static_cast<int64_t>(kOutputsAlive) + 1 : kWarmUps;
  std::string stamps;
  for (int64_t number = 0; number < warm_ups + task.repeats; ++number) {
    const Stamp stamp = turn.call(number);
    if (number >= warm_ups) stamps += to_string(stamp) + " ";
  }
  turn.check(warm_ups + task.repeats - 1);
  return stamps;
}

}  // namespace

int serve(Contender& contender, Meeting& meeting, const std::string& path) {
  const std::string place = path + "." + std::to_string(meeting.rank());
  std::ifstream in(place + ".in");
  std::ofstream out(place + ".out");
  for (std::string line; std::getline(in, line);) {
    try {
      out << run(contender, meeting, task_from(line)) << '\n' << std::flush;
    } catch (const std::exception& error) {
      out << "error " << error.what() << '\n' << std::flush;
      return 1;
    }
  }
  return 0;
}

}  // namespace shardway::bench
