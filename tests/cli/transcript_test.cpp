// Whole outputs: every file of tests/cli/golden is a transcript of commands ("$ …") and all that they print,
// followed by "[exit N]" where N is not 0. `make golden` writes them anew.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shardway::testing {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> transcripts() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(SHARDWAY_GOLDEN)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string output_of(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  std::string text;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code == 0 ? text : text + "[exit " + std::to_string(code) + "]\n";
}

// The commands of a transcript, run again.
std::string played(const std::string& transcript) {
  std::istringstream lines(transcript);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("$ ")) text += (text.empty() ? "" : "\n") + line + "\n" + output_of(line.substr(2));
  }
  return text;
}

class Transcript : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    setenv("PATH", (std::string(SHARDWAY_PROGRAM_FOLDER) + ":" + std::getenv("PATH")).c_str(), 1);
    for (const char* name : {"SHARDWAY_TOPOLOGY", "LOCAL_WORLD_SIZE", "NO_COLOR"}) unsetenv(name);
    folder_ = fs::temp_directory_path() / ("shardway-transcript-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    fs::current_path(folder_);
  }

  void TearDown() override {
    fs::current_path(folder_.parent_path());
    fs::remove_all(folder_);
  }

 private:
  fs::path folder_;
};

TEST_P(Transcript, IsWhatTheProgramPrints) {
  const std::string golden = read_file(GetParam());
  const std::string printed = played(golden);
  if (std::getenv("SHARDWAY_WRITE_GOLDEN") != nullptr) {
    std::ofstream(GetParam()) << printed;
  } else {
    EXPECT_EQ(printed, golden) << "if this is meant: make golden";
  }
}

INSTANTIATE_TEST_SUITE_P(, Transcript, ::testing::ValuesIn(transcripts()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace shardway::testing
