// The record of this process: its last calls, in a memory file of its own that holds no tensor bytes. Other
// processes of the same user find the file in /proc and read it, even when this process hangs (reader.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "record/call_totals.h"
#include "record/record_file.h"
#include "record/recorded_call.h"
#include "record/trace.h"

namespace shardway::record {

// A few milliseconds late, and so as cheap as a clock can be. All processes of the host have the same.
[[gnu::visibility("default")]] int64_t now_ns();

// Whether somebody sees how long a single call takes. Then clocks are precise.
bool shows_times();

struct CallStart {
  const char* op = "call";  // cut after kOpBytes - 1
  uint64_t number = 0;
  uint64_t group = 0;
  int64_t rank = 0;
  int64_t size = 1;
  int64_t bytes = 0;
  bool may_span_hosts = false;
};

class Recorder;

// A call that has begun. It is in the record from `open` on: as running, until it is done, or failed when it
// is destroyed before it is done. A call that fails before it is open is in the record too. Where there is no
// record (no file could be made), nothing happens. Any thread may make one; the call itself belongs to one
// thread. Its line stays until it has ended, however many calls other threads make meanwhile.
class BegunCall {
 public:
  explicit BegunCall(const CallStart& start)
      : start_(start), begun_ticks_(now_ticks()), begun_ns_(shows_times() ? precise_ns() : 0) {}
  ~BegunCall() {
    if (!is_over_) end(CallState::failed);
  }
  BegunCall(const BegunCall&) = delete;
  BegunCall& operator=(const BegunCall&) = delete;

  // Once. A caller for whom others wait opens the call after they have what they wait for.
  void open();

  // How long it has waited for other ranks, where that is known.
  void set_waited(int64_t ns) { waited_ns_ = ns; }

  void done() {
    if (!std::exchange(is_over_, true)) end(CallState::done);
  }

 private:
  void end(CallState state);

  CallStart start_;
  uint64_t begun_ticks_;
  int64_t begun_ns_;              // 0: as of `open`
  Recorder* recorder_ = nullptr;  // once it is open
  RecordLine* line_ = nullptr;
  int64_t waited_ns_ = -1;  // not known
  bool is_over_ = false;
};

// The same, open from the beginning.
class OpenCall : public BegunCall {
 public:
  explicit OpenCall(const CallStart& start) : BegunCall(start) { open(); }
};

// This process's last calls, the newest last. Empty where there is no record.
[[gnu::visibility("default")]] std::vector<RecordedCall> last_calls();

}  // namespace shardway::record
