// shardway launch
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/launch/supervision.h"
#include "cli/notation.h"
#include "cli/subcommand.h"

namespace shardway::cli {
namespace {

constexpr const char* kLesson =
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
  bool keeps_going = false;
};

int64_t read_may_lose(const std::string& written, int64_t ranks) {
  if (written.empty()) return 0;
  const int64_t losses = count_given("--may-lose", written, "how many ranks may fail, such as 1");
  if (losses >= ranks)
    throw std::invalid_argument("--may-lose " + written + " leaves no rank of " + std::to_string(ranks));
  return losses;
}

ExitCode answer(const WrittenLaunch& written, std::vector<std::string> command) {
  if (command.empty()) throw std::invalid_argument("there is no program to run; see shardway launch --help");
  if (command.front().starts_with('-'))
    throw std::invalid_argument(command.front() + " is not known here; see shardway launch --help");
  LaunchCall call{.keeps_going = written.keeps_going, .command = std::move(command)};
  call.ranks = count_given("--ranks", written.ranks, "the number of ranks, such as 4");
  if (call.ranks > kMostRanks)
    throw std::invalid_argument("--ranks " + written.ranks + " is more than " + std::to_string(kMostRanks) +
                                ", the most that launch starts");
  call.may_lose = read_may_lose(written.may_lose, call.ranks);
  return static_cast<ExitCode>(supervise(call));
}

}  // namespace

Answer add_launch(CLI::App& options) {
  auto written = std::make_shared<WrittenLaunch>();
  options.set_help_flag("-h,--help", "print this help");
  options.add_option("-n,--ranks", written->ranks, "how many processes to start, up to 1024")
      ->type_name("N")
      ->required();
  options.add_flag("--keep-going", written->keeps_going, "when a rank fails, let the others go on");
  options
      .add_option("--may-lose", written->may_lose,
                  "let the others go on while at most N ranks have failed; the exit code is 0 then")
      ->type_name("N");
  options.prefix_command();
  options.footer(kLesson);
  return [&options, written] { return answer(*written, options.remaining()); };
}

}  // namespace shardway::cli
