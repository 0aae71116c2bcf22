// What standard output is: how wide, and whether it shows colours.
#pragma once

#include <cstdint>
#include <string>

namespace shardway::cli {

struct Terminal {
  int64_t columns = 100;
  bool has_colours = false;
};

// A terminal has its own width, and colours unless NO_COLOR is set or TERM is dumb.
Terminal terminal_of_stdout();

std::string bold(const Terminal& terminal, const std::string& text);
std::string faint(const Terminal& terminal, const std::string& text);

// In a colour that stands for this rank, if the terminal has colours.
std::string in_colour_of(int64_t rank, const Terminal& terminal, const std::string& text);

}  // namespace shardway::cli
