// Files that look like records and are none.
#include "record/reader.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <new>

namespace shardway::testing {
namespace {

using namespace record;

enum class Sealed : uint8_t { yes, no };

// A file as a process may forge it: a good record of one call, which `change` spoils.
shm::File forged(const std::function<void(RecordFile&)>& change, Sealed sealed = Sealed::yes) {
  shm::File file = shm::new_memory_file(kFileName);
  shm::set_size(file, sizeof(RecordFile));
  const shm::Mapping mapping(file, sizeof(RecordFile), shm::Mapping::Access::write);
  auto* record = new (mapping.data()) RecordFile{};
  record->head.memory.nonce = kMagic;
  record->head.version = kVersion;
  record->head.pid = getpid();
  RecordLine& line = record->lines[3];
  line.sequence = 2;
  line.number = 17;
  line.size = 2;
  line.rank = 1;
  line.state = static_cast<uint32_t>(CallState::done);
  uint64_t op = 0;
  std::memcpy(&op, "barrier", 7);
  line.op[0] = op;
  change(*record);
  if (sealed == Sealed::yes) shm::seal(file, shm::Writers::anybody);
  return file;
}

size_t calls_left(const std::function<void(RecordLine&)>& change) {
  const auto record = record_in(forged([&](RecordFile& file) { change(file.lines[3]); }));
  return record ? record->calls.size() : 99;
}

TEST(Reader, ReadsWhatIsInOrder) {
  const auto record = record_in(forged([](RecordFile&) {}));
  ASSERT_TRUE(record);
  ASSERT_EQ(record->calls.size(), 1U);
  EXPECT_EQ(record->calls[0].op, "barrier");
  EXPECT_EQ(record->calls[0].number, 17U);
  EXPECT_EQ(record->pid, getpid());
}

TEST(Reader, RefusesAFileThatIsNoRecord) {
  EXPECT_FALSE(record_in(forged([](RecordFile& file) { ++file.head.memory.nonce[1]; })));
  EXPECT_FALSE(record_in(forged([](RecordFile& file) { ++file.head.version; })));
  EXPECT_FALSE(record_in(forged([](RecordFile&) {}, Sealed::no)));
  shm::File brief = shm::new_memory_file(kFileName);
  shm::set_size(brief, 100);
  shm::seal(brief, shm::Writers::anybody);
  EXPECT_FALSE(record_in(brief));
  EXPECT_FALSE(record_in(shm::File(dup(STDIN_FILENO))));
}

TEST(Reader, RefusesAHeadThatMakesNoSense) {
  EXPECT_FALSE(record_in(forged([](RecordFile& file) { file.head.job.fill('j'); })));
  EXPECT_FALSE(record_in(forged([](RecordFile& file) { file.head.launcher.fill('l'); })));
  EXPECT_FALSE(record_in(forged([](RecordFile& file) {
    file.head.is_of_job = 1;
    file.head.rank = 4;
    file.head.size = 4;
  })));
}

TEST(Reader, LeavesOutLinesThatMakeNoSense) {
  EXPECT_EQ(calls_left([](RecordLine&) {}), 1U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.state = 3; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.rank = 2; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.rank = -1; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.size = INT32_MAX; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.bytes = -1; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.begun_ns = -1; }), 0U);
  EXPECT_EQ(calls_left([](RecordLine& line) { line.sequence = 3; }), 0U);  // its writer never finishes
  EXPECT_EQ(calls_left([](RecordLine& line) {
              for (auto& word : line.op) word = 0x7878787878787878U;  // no end
            }),
            0U);
}

TEST(Reader, AWordForTheTerminalIsMadePrintable) {
  const auto record = record_in(forged([](RecordFile& file) {
    file.lines[3].op[0] = 0x0000006d5b1b6162U;  // "ba" ESC "[m"
    std::strcpy(file.head.job.data(), "a\nb\xff");
  }));
  ASSERT_TRUE(record);
  EXPECT_EQ(record->calls.at(0).op, "ba?[m");
  EXPECT_EQ(record->job, "a?b?");
}

TEST(Reader, OfAForgedFileThatSaysAnotherProcessThereIsNoRecord) {
  const pid_t child = fork();
  if (child == 0) {
    const shm::File file = forged([](RecordFile& made) { made.head.pid = 1; });
    _exit(record_of(getpid()) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Reader, TellsHowAProcessIs) {
  const ProcessState own = state_of(getpid());
  EXPECT_TRUE(own == ProcessState::running || own == ProcessState::sleeping);  // the latter by qemu-user
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(state_of(child), ProcessState::stopped);
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  EXPECT_EQ(state_of(child), ProcessState::ended);  // a zombie
  waitpid(child, nullptr, 0);
  EXPECT_EQ(state_of(child), ProcessState::ended);
}

}  // namespace
}  // namespace shardway::testing
