#include "cli/launch/members.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>

#include "shm/memory/file.h"

namespace shardway::cli {
namespace {

constexpr const char* kPart = "SHARDWAY_LAUNCH_PART";

// Below those that systems give to outgoing connections.
constexpr uint16_t kFirstPort = 20'000;
constexpr uint16_t kLastPort = 29'999;

uint16_t free_port_here() {
  const shm::File listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!listener || bind(listener.get(), any, bytes) != 0 || getsockname(listener.get(), any, &bytes) != 0)
    throw std::system_error(errno, std::generic_category(), "no free port");
  return ntohs(address.sin_port);
}

// The names are torchrun's.
LaunchMember rank_member(const LaunchCall& call, const LaunchIdentity& launch, int64_t place) {
  const WorldPart part =
      call.part.value_or(WorldPart{.world_ranks = call.ranks, .address = "127.0.0.1", .port = launch.port});
  const std::string rank = std::to_string(part.first_rank + place);
  const bool takes_input = place == 0 && !call.part;
  return {.title = "rank " + rank,
          .prefix = "[" + rank + "]",
          .input = takes_input ? MemberInput::launchers : MemberInput::nothing,
          .shares_host = call.ranks > 1,
          .variables = {{"RANK", rank},
                        {"LOCAL_RANK", std::to_string(place)},
                        {"WORLD_SIZE", std::to_string(part.world_ranks)},
                        {"LOCAL_WORLD_SIZE", std::to_string(call.ranks)},
                        {"MASTER_ADDR", part.address},
                        {"MASTER_PORT", std::to_string(part.port)},
                        {"SHARDWAY_JOB", launch.job}},
          .command = call.command};
}

// A word as a shell reads it.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string text_of(const WorldPart& part) {
  return std::to_string(part.first_rank) + " " + std::to_string(part.world_ranks) + " " +
         std::to_string(part.port) + " " + part.address;
}

// The line for the shell of a host: this program, in this folder.
std::string line_for(const LaunchCall& call, const LaunchHost& host, const WorldPart& part) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string line = "cd " + quoted(std::filesystem::current_path().string()) + " && exec env " + kPart +
                     "=" + quoted(text_of(part)) + " " + quoted(program) + " launch -n " +
                     std::to_string(host.ranks);
  if (call.keeps_going) line += " --keep-going";
  for (const std::string& word : call.command) line += " " + quoted(word);
  return line;
}

std::vector<LaunchMember> host_members(const LaunchCall& call, const LaunchIdentity& launch) {
  std::vector<LaunchMember> members;
  WorldPart part{.world_ranks = call.ranks, .address = call.hosts.front().name, .port = launch.port};
  if (const size_t at = part.address.find('@'); at != std::string::npos) part.address.erase(0, at + 1);
  for (const LaunchHost& host : call.hosts) {
    std::vector<std::string> command = call.agent;
    command.push_back(host.name);
    command.push_back(line_for(call, host, part));
    members.push_back(
        {.title = "host " + host.name, .input = MemberInput::lifeline, .command = std::move(command)});
    part.first_rank += host.ranks;
  }
  return members;
}

}  // namespace

LaunchIdentity fresh_launch(const LaunchCall& call) {
  std::random_device random;
  std::uniform_int_distribution<uint16_t> ports(kFirstPort, kLastPort);
  return {.job = std::to_string(random()) + "-" + std::to_string(random()) + "-" + std::to_string(getpid()),
          .port = call.hosts.empty() ? free_port_here() : ports(random)};
}

std::vector<LaunchMember> members_of(const LaunchCall& call, const LaunchIdentity& launch) {
  if (!call.hosts.empty()) return host_members(call, launch);
  std::vector<LaunchMember> members;
  for (int64_t place = 0; place < call.ranks; ++place) members.push_back(rank_member(call, launch, place));
  return members;
}

std::optional<WorldPart> take_part_from_environment() {
  const char* text = std::getenv(kPart);
  if (text == nullptr) return std::nullopt;
  WorldPart part;
  int begin = 0;
  const int found = std::sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNu16 " %n", &part.first_rank,
                                &part.world_ranks, &part.port, &begin);
  if (found != 3 || text[begin] == '\0')
    throw std::invalid_argument(std::string(kPart) + "=" + text + " was not written by shardway launch");
  part.address = text + begin;
  unsetenv(kPart);
  return part;
}

}  // namespace shardway::cli
