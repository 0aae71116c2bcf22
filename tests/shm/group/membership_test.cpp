// Who gets a rank's memory when ranks join.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "rank_runner.h"
#include "scenario.h"
#include "shm/board/group_memory.h"
#include "shm/board/retired.h"
#include "shm/join/abstract_socket.h"
#include "shm/join/handshake.h"
#include "shm/join/rendezvous.h"
#include "shm/memory/arena.h"

namespace shardway::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using shm::File;

// The doorways that anybody can see.
std::set<std::string> doorways() {
  std::set<std::string> names;
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find("@shardway-");
    if (at != std::string::npos && line.find("-job-") == std::string::npos) names.insert(line.substr(at + 1));
  }
  return names;
}

// Whether a connection that says this brings a file.
bool gets_a_file(const std::string& name, std::span<const std::byte> greeting) {
  const File connection = shm::connect_to(name, 300ms);
  if (!greeting.empty()) (void)!send(connection.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL);
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  return recvmsg(connection.get(), &message, 0) > 0 && CMSG_FIRSTHDR(&message) != nullptr;
}

// Where a rank's word in the first round has the name of its doorway and the secret.
constexpr size_t kDoorway = offsetof(shm::Hello, doorway);
constexpr size_t kSecret = offsetof(shm::Hello, secret);

std::string socket_of(uint64_t doorway) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "shardway-%016llx", static_cast<unsigned long long>(doorway));
  return text.data();
}

// Two ranks that join, and a stranger that rank 0 waits for: `visit` gets the names of their doorways.
Endings run_with_stranger(
    const std::function<void(const std::set<std::string>&)>& visit,
    const std::function<void(int64_t)>& have_joined = [](int64_t) {}) {
  return run_unjoined(2, [&](int64_t rank, const shm::Exchange& exchange) {
    int round = 0;
    const shm::Exchange watched = [&](std::span<const std::byte> mine) {
      std::vector<std::byte> all = exchange(mine);
      if (++round != 1 || rank != 0) return all;
      const std::set<std::string> seen = doorways();
      std::set<std::string> ours;
      for (const size_t begin : {size_t{0}, mine.size()}) {
        uint64_t name = 0;
        std::memcpy(&name, all.data() + begin + kDoorway, sizeof(name));
        require(seen.contains(socket_of(name)), "a doorway was not seen");
        ours.insert(socket_of(name));
      }
      visit(ours);
      return all;
    };
    const auto joined = shm::SharedGroup::join(
        {.rank = rank, .size = 2, .exchange = watched, .arena = shm::Arena::create(1 << 26)});
    require(joined.group != nullptr, joined.why_not);
    have_joined(rank);
    run_scenario(*joined.group, gather({0}, 0, {20'000, 30'000}));
  });
}

TEST(Membership, AStrangerOfTheSameUserGetsNoMemory) {
  const Endings endings = run_with_stranger([](const std::set<std::string>& names) {
    const std::array<std::byte, 16> guess{};
    for (const std::string& name : names) {
      require(!gets_a_file(name, {}), "a stranger that says nothing got a file");
      require(!gets_a_file(name, guess), "a stranger that guesses got a file");
      require(!gets_a_file(name, std::span(guess).first(5)), "a stranger that stammers got a file");
    }
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

TEST(Membership, SilentStrangersKeepNoJoinWaiting) {
  std::vector<File> silent;
  Clock::time_point start = Clock::now();
  const Endings endings = run_with_stranger(
      [&](const std::set<std::string>& names) {
        for (const std::string& name : names) {
          for (int i = 0; i < 300; ++i) silent.push_back(shm::connect_to(name, 1s));
        }
        start = Clock::now();
      },
      [&](int64_t rank) {
        require(rank != 0 || Clock::now() - start < SHARDWAY_SLOWNESS * 1s, "the join took over a second");
      });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

// As when a peer dies in the exchange, after some ranks have got all that they need of it.
TEST(Membership, ARankWhoseJoinBreaksOffTellsTheOthersAndKeepsNothing) {
  const Endings endings = run_unjoined(3, [](int64_t rank, const shm::Exchange& exchange) {
    int exchanges = 0;
    const shm::Exchange breaking = [&](std::span<const std::byte> mine) {
      auto said = exchange(mine);
      if (rank == 1 && ++exchanges == 2) throw std::runtime_error("the exchange broke");
      return said;
    };
    const auto start = Clock::now();
    std::string told;
    try {
      const auto joined =
          shm::SharedGroup::join({.rank = rank, .size = 3, .exchange = breaking, .timeout = 20s});
      run_scenario(*joined.group, gather({0}, 0, {20, 30, 40}));
    } catch (const std::exception& error) {
      told = error.what();
    }
    const std::string wanted = rank == 1 ? "the exchange broke" : "rank 1 could not be reached: it left";
    require(told.find(wanted) != std::string::npos, told);
    require(Clock::now() - start < SHARDWAY_SLOWNESS * 5s, "it was told late");
    exchange(std::as_bytes(std::span(&rank, 1)));
    shm::sweep_retired();
    const int64_t kept = shm::Arena::stats_of_process().in_use_bytes;
    require(kept == 0, std::to_string(kept) + " bytes are kept");
  });
  EXPECT_EQ(endings, (Endings{"", "", ""}));
}

TEST(Membership, AGroupsMemoryOfAnotherSizeIsRefused) {
  const auto [memory, file] = shm::GroupMemory::create(shm::BoardPlan(3));
  EXPECT_THROW(shm::GroupMemory::open(file, memory->nonce(), shm::BoardPlan(2)), std::runtime_error);
  const auto other = shm::GroupMemory::open(file, memory->nonce(), shm::BoardPlan(3));
  memory->section(shm::BoardPlan(3), 2)[7] = std::byte(9);
  EXPECT_EQ(other->section(shm::BoardPlan(3), 2)[7], std::byte(9));
}

// What the system says of this process's mappings of memory files with this name.
std::vector<std::string> flags_of_mappings(const std::string& name) {
  std::ifstream file("/proc/self/smaps");
  std::vector<std::string> flags;
  bool is_it = false;
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:" + name) != std::string::npos) is_it = true;
    if (line.rfind("VmFlags:", 0) == 0 && std::exchange(is_it, false)) flags.push_back(line);
  }
  return flags;
}

bool is_out_of_core_dumps(const std::string& flags) { return flags.find(" dd") != std::string::npos; }

TEST(Membership, SharedMemoryStaysOutOfCoreDumps) {
  const File probe(memfd_create("probe", MFD_CLOEXEC));
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, probe.get(), 0);
  ASSERT_EQ(madvise(page, 4096, MADV_DONTDUMP), 0);
  const bool is_heeded = is_out_of_core_dumps(flags_of_mappings("probe").at(0));
  munmap(page, 4096);
  if (!is_heeded) GTEST_SKIP() << "the system takes MADV_DONTDUMP and forgets it, as qemu-user does";
  const Endings endings = run_processes(2, [](shm::SharedGroup&) {
    const std::vector<std::string> all = flags_of_mappings("shardway");
    for (const std::string& flags : all) require(is_out_of_core_dumps(flags), flags);
    require(all.size() >= 3, std::to_string(all.size()) +
                                 " mappings where own arena, the peer's and the group's are expected");
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

// A handshake that fails once is no sign of another host.
TEST(Membership, AFailedHandshakeIsTriedAgain) {
  const Endings endings = run_unjoined(2, [](int64_t rank, const shm::Exchange& exchange) {
    std::thread doorman;
    int round = 0;
    // Rank 0 finds, in place of rank 1's doorway, one that hangs up on its first visitor.
    const shm::Exchange detour = [&](std::span<const std::byte> mine) {
      std::vector<std::byte> all = exchange(mine);
      if (++round != 1 || rank != 0) return all;
      uint64_t name = 0;
      shm::Nonce secret{};
      std::memcpy(&name, all.data() + mine.size() + kDoorway, sizeof(name));
      std::memcpy(&secret, all.data() + mine.size() + kSecret, sizeof(secret));
      auto handed = std::make_shared<shm::Handed>(shm::call_at(name, secret, 1s));
      const uint64_t detoured = name ^ 1;
      std::memcpy(all.data() + mine.size() + kDoorway, &detoured, sizeof(detoured));
      auto listener = std::make_shared<File>(shm::listen_at(socket_of(detoured)));
      doorman = std::thread([=] {
        { const File first(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC)); }
        const File second(accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
        shm::Nonce said{};
        recv(second.get(), said.data(), sizeof(said), MSG_WAITALL);
        const std::array<int, 2> files = {handed->arena.get(), handed->process.get()};
        char byte = 'a';
        iovec data{.iov_base = &byte, .iov_len = 1};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(files))> control{};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(files));
        std::memcpy(CMSG_DATA(rights), files.data(), sizeof(files));
        sendmsg(second.get(), &message, MSG_NOSIGNAL);
      });
      return all;
    };
    const auto joined = shm::SharedGroup::join(
        {.rank = rank, .size = 2, .exchange = detour, .arena = shm::Arena::create(1 << 26)});
    if (doorman.joinable()) doorman.join();
    require(joined.group != nullptr, joined.why_not);
    run_scenario(*joined.group, gather({0}, 0, {20'000, 30'000}));
  });
  EXPECT_EQ(endings, (Endings{"", ""}));
}

}  // namespace
}  // namespace shardway::testing
