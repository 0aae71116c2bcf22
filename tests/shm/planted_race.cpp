// The test of the thread sanitizer's run: a rank that breaks the rules of shared memory is seen. It goes on
// writing its tensor while a peer reads it in a call; the run passes only if that is reported.
#include <atomic>
#include <cstdio>
#include <thread>

#include "rank_runner.h"
#include "shm/calls/contiguous.h"
#include "shm/group/group.h"

namespace shardway::testing {
namespace {

constexpr int64_t kBytes = 256 << 10;

// All ranks' tensors, one behind the other.
shm::ContiguousCall gather(const shm::SharedGroup& group, const std::byte* input, std::byte* output) {
  shm::ContiguousCall call{.input = input, .input_bytes = kBytes, .output = output};
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    call.sends.push_back({.begin = 0, .bytes = kBytes});
    call.takes.push_back({.from = 0, .to = rank * kBytes, .bytes = kBytes});
  }
  return call;
}

void race(shm::SharedGroup& group) {
  auto* input = static_cast<std::byte*>(group.arena()->allocate(kBytes));
  std::vector<std::byte> output(static_cast<size_t>(group.size() * kBytes));
  std::atomic<bool> is_over = false;
  std::thread writer;
  if (group.rank() == 0) {
    writer = std::thread([&] {
      for (int64_t i = 0; !is_over.load(std::memory_order_relaxed); i = (i + 64) % kBytes)
        input[i] = std::byte{1};
    });
  }
  for (int call = 0; call < 20; ++call) group.run(gather(group, input, output.data()));
  is_over = true;
  if (writer.joinable()) writer.join();
}

}  // namespace
}  // namespace shardway::testing

int main() {
  shardway::testing::run_threads(2, shardway::testing::race);
  std::puts("the ranks are done");
}
