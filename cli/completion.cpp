// shardway completion: scripts for shells, made from the options that the parser knows.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/subcommand.h"
#include "shardway/layout.h"
#include "shardway/plan.h"

namespace shardway::cli {
namespace {

constexpr const char* kCompletionLesson =
    "Examples:\n"
    "  eval \"$(shardway completion bash)\"          # in ~/.bashrc\n"
    "  eval \"$(shardway completion zsh)\"           # in ~/.zshrc, after compinit\n"
    "  shardway completion fish | source           # in ~/.config/fish/config.fish";

// The words that an option's value can be, by the name of its type.
std::string words_of(const std::string& type) {
  std::string words;
  if (type == "RULES") {
    for (const Rules rules : {Rules::shardway, Rules::torch_2_13, Rules::seed_004})
      words += name_of(rules) + std::string(" ");
  }
  if (type == "DTYPE") {
    for (int dtype = 0; dtype <= static_cast<int>(DType::c128); ++dtype) {
      words += name_of(static_cast<DType>(dtype)) + std::string(" ");
    }
  }
  if (type == "PLACEMENTS") words = "R S0 S1 P ";
  if (type == "SHELL") words = "bash zsh fish ";
  if (!words.empty()) words.pop_back();
  return words;
}

std::string bash_case(const CLI::App& subcommand) {
  std::string options;
  std::string values;
  for (const CLI::Option* option : subcommand.get_options()) {
    const std::string type = option->get_type_name();
    if (option->get_positional()) {
      options += words_of(type) + " ";
      continue;
    }
    const std::string name = option->get_name();
    options += name + " ";
    if (type == "FILE") values += "      " + name + ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n";
    if (!words_of(type).empty()) {
      values += "      " + name + ") COMPREPLY=($(compgen -W \"" + words_of(type) +
                "\" -- \"$word\")); return ;;\n";
    }
  }
  options.pop_back();
  return "    " + subcommand.get_name() + ")\n      case $before in\n" + values +
         "      esac\n      COMPREPLY=($(compgen -W \"" + options + "\" -- \"$word\")) ;;\n";
}

std::string bash_script(const CLI::App& program) {
  std::string names;
  std::string cases;
  for (const CLI::App* subcommand : program.get_subcommands({})) {
    names += subcommand->get_name() + " ";
    cases += bash_case(*subcommand);
  }
  return "_shardway() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"" +
         names + "--help --version\" -- \"$word\")); return; fi\n  case ${COMP_WORDS[1]} in\n" + cases +
         "  esac\n}\ncomplete -o default -F _shardway shardway\n";
}

std::string fish_script(const CLI::App& program) {
  std::string text = "complete -c shardway -f\n";
  for (const CLI::App* subcommand : program.get_subcommands({})) {
    const std::string& name = subcommand->get_name();
    text += "complete -c shardway -n __fish_use_subcommand -a " + name + " -d '" +
            subcommand->get_description() + "'\n";
    const std::string when = "complete -c shardway -n '__fish_seen_subcommand_from " + name + "'";
    if (subcommand->get_prefix_command()) text += when + " -F\n";  // the program is a file
    for (const CLI::Option* option : subcommand->get_options()) {
      const std::string type = option->get_type_name();
      const std::string words = words_of(type);
      std::string line = when;
      if (!option->get_positional()) line += " -l " + option->get_name().substr(2);
      if (type == "FILE") line += " -r -F";
      if (!words.empty()) line += (option->get_positional() ? " -a '" : " -x -a '") + words + "'";
      text += line + "\n";
    }
  }
  return text;
}

ExitCode answer(const CLI::App& program, const std::string& shell) {
  if (shell == "bash") {
    print(bash_script(program));
  } else if (shell == "zsh") {
    print("autoload -U +X bashcompinit && bashcompinit\n" + bash_script(program));
  } else if (shell == "fish") {
    print(fish_script(program));
  } else {
    throw std::invalid_argument("'" + shell + "' is not a shell that it knows; it is bash, zsh or fish");
  }
  return ExitCode::yes;
}

}  // namespace

Answer add_completion(CLI::App& options) {
  auto shell = std::make_shared<std::string>();
  options.set_help_flag("-h,--help", "print this help");
  options.add_option("shell", *shell, "bash, zsh or fish")->type_name("SHELL")->required();
  options.footer(kCompletionLesson);
  const CLI::App* program = options.get_parent();
  return [program, shell] { return answer(*program, *shell); };
}

}  // namespace shardway::cli
