// The record of this process: its last calls, in a memory file of its own that holds no tensor bytes. Other
// processes of the same user find the file in /proc and read it, even when this process hangs (reader.h).
#pragma once

#include <cstdint>
#include <vector>

#include "record/record_file.h"
#include "record/recorded_call.h"

namespace shardway::record {

// A few milliseconds late, and so as cheap as a clock can be. All processes of the host have the same.
[[gnu::visibility("default")]] int64_t now_ns();

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

// A call in the record: running from here on, failed when it is destroyed before it is done. Where there is
// no record (no file could be made), nothing happens. Any thread may make one; the call itself belongs to one
// thread. Its line stays until it has ended, however many calls other threads make meanwhile.
class OpenCall {
 public:
  explicit OpenCall(const CallStart& start);
  ~OpenCall() {
    if (line_ != nullptr) end(CallState::failed);
  }
  OpenCall(const OpenCall&) = delete;
  OpenCall& operator=(const OpenCall&) = delete;

  // How long it has waited for other ranks, where that is known.
  void set_waited(int64_t ns) { waited_ns_ = ns; }

  void done() {
    if (line_ != nullptr) end(CallState::done);
  }

 private:
  void end(CallState state);

  Recorder* recorder_ = nullptr;
  RecordLine* line_ = nullptr;
  int64_t waited_ns_ = -1;  // not known
};

// This process's last calls, the newest last. Empty where there is no record.
[[gnu::visibility("default")]] std::vector<RecordedCall> last_calls();

}  // namespace shardway::record
