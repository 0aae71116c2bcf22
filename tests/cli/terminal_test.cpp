// The program on a terminal of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <regex>
#include <sstream>

namespace shardway::testing {
namespace {

// What the program prints on a terminal of this width.
std::string on_terminal(uint16_t columns, const std::string& arguments) {
  winsize size{};
  size.ws_col = columns;
  int master = -1;
  const pid_t child = forkpty(&master, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm-256color", 1);
    const std::string command = std::string(SHARDWAY_PROGRAM_FOLDER) + "/shardway " + arguments;
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(master, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(got));
  close(master);
  waitpid(child, nullptr, 0);
  return text;
}

std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), "");
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t width = 0;
    for (const char letter : line)
      width += letter != '\r' && (static_cast<unsigned char>(letter) & 0xC0U) != 0x80U;
    widest = std::max(widest, width);
  }
  return widest;
}

constexpr const char* kPlan = "plan --mesh dp=2,tp=4 --shape 4096x4096 --from S0,P --to R,S1";
constexpr const char* kRagged =
    "plan --mesh 12 --shape 780x4 --from 'S0[120,10,20,30,40,50,60,70,80,90,100,110]' --to S1";

TEST(OnATerminal, ThereAreColours) {
  EXPECT_NE(on_terminal(100, kPlan).find("\x1b[38;5;"), std::string::npos);
}

TEST(OnATerminal, NoColorIsHeeded) {
  setenv("NO_COLOR", "1", 1);
  EXPECT_EQ(on_terminal(100, kPlan).find('\x1b'), std::string::npos);
  unsetenv("NO_COLOR");
}

TEST(OnATerminal, LinesFit) {
  for (const uint16_t columns : {80, 100, 160}) {
    for (const std::string call : {kPlan, kRagged}) {
      for (const std::string more : {"", " --sweep 1=1:64"}) {
        const std::string text = without_colours(on_terminal(columns, call + more));
        EXPECT_NE(text.find("f32["), std::string::npos) << text;
        EXPECT_LE(widest_line(text), columns) << call << more << "\n" << text;
      }
    }
  }
}

}  // namespace
}  // namespace shardway::testing
