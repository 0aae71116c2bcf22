// shardway launch
#include <CLI/CLI.hpp>
#include <iterator>
#include <memory>
#include <sstream>

#include "cli/launch/host_file.h"
#include "cli/launch/members.h"
#include "cli/launch/supervision.h"
#include "cli/notation.h"
#include "cli/subcommand.h"

namespace shardway::cli {
namespace {

constexpr const char* kLaunchLesson =
    "Everything after the options is the program and its own arguments. Every rank gets torchrun's\n"
    "variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. So sw::join()\n"
    "in C++ and torch.distributed.init_process_group in Python find the other ranks without arguments. What\n"
    "a rank prints has its number before every line; a line may end in a carriage return. The first rank\n"
    "reads standard input, unless it is a terminal.\n"
    "\n"
    "Where a rank fails, the others are asked to end (SIGTERM), and after 5 s they are ended. What a rank\n"
    "leaves running is asked to end with it; what has left its process group, with the last rank. Nothing\n"
    "outlives the launcher. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 go on to every rank,\n"
    "unless they are ignored from the start, as SIGHUP is under nohup.\n"
    "\n"
    "With --keep-going the others run on, for programs that can do with fewer ranks (sw.shrink) and for\n"
    "ranks that do not need one another. Each failure is told at once, and at the end how many ranks ended\n"
    "well. After SIGINT, SIGTERM, SIGHUP or SIGQUIT no rank is kept going: the first that fails ends all.\n"
    "\n"
    "With --hosts the ranks are on several hosts, in the order of the file. Its lines are as mpirun has "
    "them:\n"
    "node-a:4, or node-a slots=4, or node-a for one rank; # begins a remark. On each host the agent starts\n"
    "this program, by its path here, in this folder, and that starts the ranks. The agent is called as ssh\n"
    "is: with a host and a line for a shell there. MASTER_ADDR is the first host by its name in the file.\n"
    "Where a host fails, the others are ended; when the launcher ends, so do the ranks everywhere. Ranks "
    "read\n"
    "nothing, SIGUSR1 and SIGUSR2 stay here, and variables are not handed on: give them as arguments of "
    "env.\n"
    "init_process_group in Python joins such ranks. C++ programs that use MPI are started by mpirun, and\n"
    "torchrun --nnodes starts a host at a time.\n"
    "\n"
    "Examples:\n"
    "  shardway launch -n 4 ./contrastive\n"
    "      a C++ program that calls sw::join(), on four ranks\n"
    "  shardway launch -n 2 python train.py --epochs 3\n"
    "      a Python program with its arguments\n"
    "  shardway launch -n 8 --keep-going ./try-each-seed\n"
    "      the other ranks go on when one fails\n"
    "  shardway launch -n 4 --may-lose 1 python examples/keep_going.py\n"
    "      training that goes on with three ranks, and is a success then; a second failure ends it\n"
    "  shardway launch -n 4 sh -c 'exec taskset -c $LOCAL_RANK ./contrastive'\n"
    "      every rank on a core of its own\n"
    "  shardway launch --hosts hosts.txt env PYTHONPATH=$PYTHONPATH python train.py\n"
    "      as many ranks as the hosts of the file take, started over ssh\n"
    "  shardway launch --hosts hosts.txt --agent 'ssh -p 2222' -n 6 python train.py\n"
    "      the first six of them, by an agent of one's own\n"
    "\n"
    "Exit codes: 0 if every rank ended with 0, but for those that --may-lose allows; else that of the first\n"
    "other rank that failed, 128 + N where signal N ended it, with --keep-going too; 2 for a mistake in the\n"
    "call.";

int64_t count_given(const char* option, const std::string& written, const char* what) {
  try {
    return read_count(written, what);
  } catch (const std::invalid_argument& mistake) {
    throw std::invalid_argument(std::string(option) + " " + written + ": " + mistake.what());
  }
}

struct WrittenLaunch {
  std::string ranks = {};
  std::string may_lose = {};
  std::string hosts = {};
  std::string agent = {};
  bool keeps_going = false;
};

constexpr const char* kRanks = "the number of ranks, such as 4";
constexpr const char* kUsualAgent = "ssh -o BatchMode=yes";

int64_t read_may_lose(const std::string& written, int64_t ranks) {
  if (written.empty()) return 0;
  const int64_t losses = count_given("--may-lose", written, "how many ranks may fail, such as 1");
  if (losses >= ranks)
    throw std::invalid_argument("--may-lose " + written + " leaves no rank of " + std::to_string(ranks));
  return losses;
}

int64_t read_ranks(const std::string& written) {
  const int64_t ranks = count_given("--ranks", written, kRanks);
  if (ranks > kMostRanks)
    throw std::invalid_argument("--ranks " + written + " is more than " + std::to_string(kMostRanks) +
                                ", the most that launch starts");
  return ranks;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>()};
}

void add_hosts(const WrittenLaunch& written, LaunchCall& call) {
  if (!written.may_lose.empty())
    throw std::invalid_argument(
        "--may-lose is for the ranks of one host: leave out --hosts, or take --keep-going");
  const int64_t ranks = written.ranks.empty() ? 0 : count_given("--ranks", written.ranks, kRanks);
  call.hosts = hosts_of(read_host_file(written.hosts), ranks);
  call.ranks = 0;
  for (const LaunchHost& host : call.hosts) call.ranks += host.ranks;
  call.agent = words_of(written.agent.empty() ? kUsualAgent : written.agent);
  if (call.agent.empty()) throw std::invalid_argument("--agent has no command");
}

ExitCode answer(const WrittenLaunch& written, std::vector<std::string> command) {
  if (command.empty()) throw std::invalid_argument("there is no program to run; see shardway launch --help");
  if (command.front().starts_with('-'))
    throw std::invalid_argument(command.front() + " is not known here; see shardway launch --help");
  LaunchCall call{.keeps_going = written.keeps_going, .command = std::move(command)};
  if (!written.hosts.empty()) {
    add_hosts(written, call);
    return static_cast<ExitCode>(supervise(call));
  }
  if (!written.agent.empty()) throw std::invalid_argument("--agent goes with --hosts");
  if (written.ranks.empty()) throw std::invalid_argument("--ranks is required; see shardway launch --help");
  call.ranks = read_ranks(written.ranks);
  call.may_lose = read_may_lose(written.may_lose, call.ranks);
  call.part = take_part_from_environment();
  return static_cast<ExitCode>(supervise(call));
}

}  // namespace

Answer add_launch(CLI::App& options) {
  auto written = std::make_shared<WrittenLaunch>();
  options.set_help_flag("-h,--help", "print this help");
  options
      .add_option(
          "-n,--ranks", written->ranks,
          "how many processes to start, up to 1024; with --hosts as many as these take, or the first N")
      ->type_name("N");
  options.add_option("--hosts", written->hosts, "start ranks on the hosts of this file")->type_name("FILE");
  options
      .add_option("--agent", written->agent,
                  "how to start a program on a host: ssh -o BatchMode=yes, or this")
      ->type_name("COMMAND");
  options.add_flag("--keep-going", written->keeps_going, "when a rank fails, let the others go on");
  options
      .add_option("--may-lose", written->may_lose,
                  "let the others go on while at most N ranks have failed; the exit code is 0 then")
      ->type_name("N");
  options.prefix_command();
  options.footer(kLaunchLesson);
  return [&options, written] { return answer(*written, options.remaining()); };
}

}  // namespace shardway::cli
