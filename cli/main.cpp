// The shardway program: exit code 0; 1 when the answer is no; 2 for a mistake in the call; launch gives that
// of its ranks.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "cli/nearest.h"
#include "cli/subcommand.h"
#include "shardway/version.h"

namespace shardway::cli {

void print(const std::string& text) {
  const bool is_out =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!is_out) throw std::invalid_argument(std::string("standard output: ") + std::strerror(errno));
}

namespace {

// Shows options with their type only. What they exclude is said when it matters.
class PlainFormatter : public CLI::Formatter {
 public:
  PlainFormatter() { column_width(27); }

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = CLI::Formatter::make_usage(app, std::move(name));
    if (app->get_prefix_command()) text.insert(text.find('\n'), " PROGRAM [ARGUMENTS...]");
    return text;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_size() == 0 ? "" : " " + option->get_type_name();
  }
};

constexpr const char* kExamples =
    "Try:\n"
    "  shardway plan --mesh dp=2,tp=4 --shape 4096x4096 --from S0,P --to R,S1\n"
    "  shardway plan --help\n"
    "  shardway launch -n 4 ./program\n"
    "  shardway status\n"
    "  shardway doctor\n"
    "  shardway calibrate -n 4 -o topology.json\n"
    "  shardway bench -n 4\n"
    "\n"
    "Exit codes: 0; 1 when the answer is no (there is no such plan, a rank is stuck,\n"
    "something is broken); 2 for a mistake in the call; launch gives that of the program.";

// The options and subcommands that can follow.
std::vector<std::string> words_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) words.push_back(option->get_name());
  for (const CLI::App* command : app.get_subcommands({})) words.push_back(command->get_name());
  return words;
}

// The parser's message as one sentence that ends with what to do.
std::string sentence_of(const CLI::ParseError& error, const CLI::App& program, const std::string& called) {
  std::string text = error.what();
  const auto parsed = program.get_subcommands();
  const bool runs_programs = !parsed.empty() && parsed.front()->get_prefix_command();
  if (const auto unknown = program.remaining(true); !unknown.empty() && !runs_programs)
    text = unknown.front() + " is not known here" +
           did_you_mean(unknown.front(), words_of(parsed.empty() ? program : *parsed.front()));
  if (const size_t end = text.find('\n'); end != std::string::npos) text.resize(end);
  return called + ": " + text + "; see " + called + " --help";
}

bool takes_a_value(const CLI::App& app, const std::string& word) {
  const CLI::Option* option = app.get_option_no_throw(word);
  return option != nullptr && option->get_expected_min() > 0;
}

// The words of the call, without a "--" between the options of a subcommand and the program that it runs. The
// parser would take what follows it for words of its own.
std::vector<std::string> words_without_mark(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto named = program.get_subcommands([&](const CLI::App* app) {
    return !words.empty() && app->get_name() == words.front() && app->get_prefix_command();
  });
  if (named.empty()) return words;
  for (size_t i = 1; i < words.size() && words[i].starts_with('-'); ++i) {
    if (words[i] == "--") {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    if (takes_a_value(*named.front(), words[i])) ++i;
  }
  return words;
}

ExitCode complain(const std::string& sentence, ExitCode code) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  return code;
}

ExitCode answer_of(const std::string& program, const Answer& answer) {
  try {
    return answer();
  } catch (const Refusal& no) {
    return complain(program + ": " + no.what(), ExitCode::no);
  } catch (const std::exception& mistake) {
    return complain(program + ": " + mistake.what(), ExitCode::mistake);
  }
}

ExitCode run(int argc, char** argv) {
  CLI::App program(
      "Plans how sharded tensors move between ranks, and starts and watches programs of several ranks.",
      "shardway");
  program.set_version_flag("--version", "shardway " SHARDWAY_VERSION, "print the version");
  program.set_help_flag("-h,--help", "print this help");
  program.require_subcommand(1);
  program.footer(kExamples);
  program.formatter(std::make_shared<PlainFormatter>());
  std::map<std::string, Answer> answers;
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App* options = program.add_subcommand(subcommand.name, subcommand.summary);
    answers.emplace(subcommand.name, subcommand.add(*options));
  }
  const auto called = [&] {
    const auto parsed = program.get_subcommands();
    return parsed.empty() ? std::string("shardway") : "shardway " + parsed.front()->get_name();
  };
  try {
    auto words = words_without_mark(program, argc, argv);
    std::reverse(words.begin(), words.end());  // as the parser takes them
    program.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // --help, --version
    program.exit(asked);
    return ExitCode::yes;
  } catch (const CLI::ParseError& error) {
    return complain(sentence_of(error, program, called()), ExitCode::mistake);
  }
  return answer_of(called(), answers.at(program.get_subcommands().front()->get_name()));
}

}  // namespace
}  // namespace shardway::cli

int main(int argc, char** argv) { return static_cast<int>(shardway::cli::run(argc, argv)); }
