#include "transport/c10d/nudged.h"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "shm/memory/fork_mutex.h"
#include "transport/common/home_process.h"

namespace shardway {
namespace {

// The works that are waited for, and the thread that nudges them.
class Nudger {
 public:
  static Nudger& instance() {
    static auto* nudger = new Nudger;  // never destroyed: its thread outlives the end of main
    return *nudger;
  }

  bool add(c10d::Work& work) {
    const std::lock_guard lock(mutex_);
    if (!home_.is_this()) begin_anew();
    if (!is_at_work_) start();
    works_.push_back(&work);
    return is_at_work_;
  }

  // The last that came is the first that goes, but for waits of several threads.
  void remove(c10d::Work& work) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(works_.rbegin(), works_.rend(), &work);
    if (found != works_.rend()) works_.erase(std::prev(found.base()));
  }

 private:
  // The thread stays for so many beats after the last wait: a program that calls again and again starts one.
  static constexpr int kIdleBeats = 10;

  Nudger() = default;

  // In a child of fork the thread does not exist, and nobody waits.
  void begin_anew() {
    works_.clear();
    is_at_work_ = false;
    home_ = {};
  }

  void start() {
    try {
      std::thread([this] { beat(); }).detach();
      is_at_work_ = true;
    } catch (const std::system_error&) {  // waits end at their timeout only
    }
  }

  void beat() {
    for (int idle = 0;;) {
      std::this_thread::sleep_for(kBeat);
      const std::lock_guard lock(mutex_);
      for (c10d::Work* work : works_) work->abort();
      idle = works_.empty() ? idle + 1 : 0;
      if (idle < kIdleBeats) continue;
      is_at_work_ = false;
      return;
    }
  }

  HomeProcess home_;
  shm::ForkMutex mutex_;
  std::vector<c10d::Work*> works_;
  bool is_at_work_ = false;
};

[[maybe_unused]] const Nudger& nudger_at_load = Nudger::instance();

}  // namespace

Nudged::Nudged(c10d::Work& work) : work_(work), has_thread_(Nudger::instance().add(work)) {}

Nudged::~Nudged() { Nudger::instance().remove(work_); }

}  // namespace shardway
