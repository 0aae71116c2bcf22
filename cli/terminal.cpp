#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>

namespace shardway::cli {
namespace {

// Those of the 256 colours that read well on black and on white. Neighbours are far apart.
constexpr int kRankColours[] = {33, 208, 35, 170, 37, 167, 99, 142, 75, 204, 71, 136};

std::string dressed(const Terminal& terminal, const std::string& code, const std::string& text) {
  return terminal.has_colours ? "\x1b[" + code + "m" + text + "\x1b[0m" : text;
}

}  // namespace

Terminal terminal_of_stdout() {
  Terminal terminal;
  if (isatty(STDOUT_FILENO) == 0) return terminal;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.columns = size.ws_col;
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  terminal.has_colours =
      (no_colour == nullptr || *no_colour == '\0') && kind != nullptr && std::string(kind) != "dumb";
  return terminal;
}

std::string bold(const Terminal& terminal, const std::string& text) { return dressed(terminal, "1", text); }

std::string faint(const Terminal& terminal, const std::string& text) { return dressed(terminal, "2", text); }

std::string in_colour_of(int64_t rank, const Terminal& terminal, const std::string& text) {
  const int colour = kRankColours[static_cast<size_t>(rank) % std::size(kRankColours)];
  return dressed(terminal, "38;5;" + std::to_string(colour), text);
}

}  // namespace shardway::cli
