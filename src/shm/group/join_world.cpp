#include "shm/group/join_world.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "shm/join/handshake.h"
#include "shm/join/meeting.h"
#include "shm/memory/job.h"

namespace shardway {
namespace {

// Filled before main begins, so it has to be made by whoever comes first.
EngineMaker& engine_under_mpirun() {
  static auto* make = new EngineMaker;
  return *make;
}

}  // namespace

void use_under_mpirun(EngineMaker make) { engine_under_mpirun() = std::move(make); }

}  // namespace shardway

namespace shardway::shm {
namespace {

[[noreturn]] void refuse_join(const std::string& why) { throw std::invalid_argument("join: " + why); }

std::vector<std::byte> only_mine(std::span<const std::byte> mine) { return {mine.begin(), mine.end()}; }

World world_of(JoinedGroup joined) {
  return {.group = std::move(joined.group), .why_not = std::move(joined.why_not)};
}

World join_job_on_hosts(const Job& job, std::chrono::milliseconds timeout) {
  const bool is_mpirun = job.launcher.ends_with("mpirun");
  if (is_mpirun && engine_under_mpirun()) return join_world(engine_under_mpirun(), timeout);
  refuse_join(job.launcher + " started " + std::to_string(*job.local_size) + " of " +
              std::to_string(job.size) + " ranks on this host, and ranks of several hosts share no memory: " +
              (is_mpirun ? "link shardway::mpi, which uses MPI between hosts, or " : "") +
              "make a Group of a c10d process group instead (rank " + std::to_string(job.rank) + ")");
}

World join_job(const Job& job, std::chrono::milliseconds timeout) {
  if (job.size == 1) return world_of(SharedGroup::join({.exchange = only_mine, .timeout = timeout}));
  if (job.local_size && *job.local_size != job.size) return join_job_on_hosts(job, timeout);
  Meeting meeting(job, timeout);
  const auto exchange = [&](std::span<const std::byte> mine) { return meeting.exchange(mine); };
  return world_of(
      SharedGroup::join({.rank = job.rank, .size = job.size, .exchange = exchange, .timeout = timeout}));
}

// The engine as a rank sees it.
struct EngineWord {
  std::array<char, 128> name = {};
  uint64_t handshake = kHandshakeVersion;
};

std::string differing_engines(const EngineWord& first, const EngineWord& there, size_t rank) {
  std::string text = "engines differ: ";
  text.append(first.name.data()).append(" on rank 0, ").append(there.name.data());
  return text.append(" on rank ").append(std::to_string(rank));
}

void check_same_engine(MessageEngine& engine) {
  EngineWord mine;
  const std::string name = engine.name().substr(0, mine.name.size() - 1);
  std::memcpy(mine.name.data(), name.data(), name.size());
  const auto words = words_of<EngineWord>(engine.exchange(std::as_bytes(std::span(&mine, 1))), engine.size());
  for (size_t rank = 1; rank < words.size(); ++rank) {
    if (words[rank].name != words[0].name) refuse_join(differing_engines(words[0], words[rank], rank));
    if (words[rank].handshake != words[0].handshake)
      refuse_join("rank " + std::to_string(rank) + " runs another version of shardway than rank 0");
  }
}

}  // namespace

World join_world(const shardway::JoinOptions& options) {
  const bool is_given = options.rank || options.size || options.exchange;
  if (!is_given) return join_job(job_of_environment(), options.timeout);
  if (!options.rank || !options.size || !options.exchange)
    refuse_join("rank, size and exchange go together, and only some of them are given");
  if (*options.size < 1) refuse_join("size=" + std::to_string(*options.size) + " is less than 1");
  if (*options.rank < 0 || *options.rank >= *options.size)
    refuse_join("rank=" + std::to_string(*options.rank) + " is not one of " + std::to_string(*options.size) +
                " ranks");
  return world_of(SharedGroup::join({.rank = *options.rank,
                                     .size = *options.size,
                                     .exchange = options.exchange,
                                     .timeout = options.timeout}));
}

World join_world(const EngineMaker& make, std::chrono::milliseconds timeout) {
  World world{.engine = make(timeout)};
  MessageEngine& engine = *world.engine;
  check_same_engine(engine);
  const Whole whole{.rank = engine.rank(),
                    .size = engine.size(),
                    .exchange = [&](std::span<const std::byte> mine) { return engine.exchange(mine); },
                    .timeout = timeout};
  JoinedGroup joined = SharedGroup::join(
      {.rank = whole.rank, .size = whole.size, .exchange = whole.exchange, .timeout = timeout});
  if (joined.group) return world_of(std::move(joined));
  world.hosts = join_hosts(whole);
  return world;
}

}  // namespace shardway::shm
