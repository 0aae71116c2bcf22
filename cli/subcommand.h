// The subcommands of the program: each adds its options to the parser, and answers when it was called.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace CLI {
class App;
}

namespace shardway::cli {

enum class ExitCode { yes = 0, no = 1, mistake = 2 };  // or that of a program that was run

// The call is right, and the answer to it is no.
class Refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a subcommand does once its options are read: prints, and gives the exit code. A mistake in the call is
// std::invalid_argument, a no is a Refusal; both carry one sentence.
using Answer = std::function<ExitCode()>;

struct Subcommand {
  const char* name;
  const char* summary;
  Answer (*add)(CLI::App& options);
};

Answer add_plan(CLI::App& options);
Answer add_launch(CLI::App& options);
Answer add_status(CLI::App& options);
Answer add_doctor(CLI::App& options);
Answer add_calibrate(CLI::App& options);
Answer add_bench(CLI::App& options);
Answer add_completion(CLI::App& options);

inline constexpr Subcommand kSubcommands[] = {
    {"plan", "the cheapest way from one sharding of a tensor to another, and why", add_plan},
    {"launch", "starts a program on several ranks, of this host or of several", add_launch},
    {"status", "what every rank of a running job is doing, and who holds the others up", add_status},
    {"doctor", "what is well on this machine, what is slow or broken, and what to do", add_doctor},
    {"calibrate", "measures what moving bytes costs on this machine, for plans to use", add_calibrate},
    {"bench", "how fast collectives are on this machine, by size and number of ranks", add_bench},
    {"completion", "lets a shell complete what is typed", add_completion},
};

// Prints to standard output; std::invalid_argument where that fails.
void print(const std::string& text);

}  // namespace shardway::cli
