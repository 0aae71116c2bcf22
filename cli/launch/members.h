// What `shardway launch` starts: the ranks of this host, or a launcher on each of several hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/launch_call.h"

namespace shardway::cli {

// What is the same for all ranks of a launch.
struct LaunchIdentity {
  std::string job = {};  // a name that no other launch has
  uint16_t port = 0;     // for programs that meet over TCP
};

LaunchIdentity fresh_launch(const LaunchCall& call);

// What a member reads: nothing, what the launcher reads, or a pipe that ends with the launcher.
enum class MemberInput : uint8_t { nothing, launchers, lifeline };

struct Variable {
  std::string name = {};
  std::string value = {};
};

// A process that is to be started.
struct LaunchMember {
  std::string title = {};   // rank 3, host node-b
  std::string prefix = {};  // before each line that it prints
  MemberInput input = MemberInput::nothing;
  bool shares_host = false;  // with other ranks: OMP_NUM_THREADS is 1, unless it is set
  std::vector<Variable> variables = {};
  std::vector<std::string> command = {};
};

std::vector<LaunchMember> members_of(const LaunchCall& call, const LaunchIdentity& launch);

// The part that the launcher on another host left in the environment, which the ranks do not get.
std::optional<WorldPart> take_part_from_environment();

}  // namespace shardway::cli
