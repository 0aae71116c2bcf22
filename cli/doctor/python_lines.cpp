#include "cli/doctor/python_lines.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

namespace shardway::cli {
namespace {

namespace fs = std::filesystem;
using AnswerClock = std::chrono::steady_clock;

constexpr const char* kSubject = "Python";

std::string own_name() {
  std::string name;
  std::ifstream file("/proc/self/cmdline");
  std::getline(file, name, '\0');
  return name;
}

// Where this program was found, before links are followed: beside it, in an environment of Python's, is the
// Python.
fs::path own_folder() {
  const std::string name = own_name();
  if (name.find('/') != std::string::npos) return fs::path(name).parent_path();
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): read, never set here
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((fs::path(folder) / name).c_str(), X_OK) == 0) return folder;
  }
  return {};
}

std::string usual_python() {
  const fs::path beside = own_folder() / "python3";
  return access(beside.c_str(), X_OK) == 0 ? beside.string() : "python3";
}

std::string last_line_of(const std::string& text) {
  const size_t end = text.find_last_not_of("\n ");
  if (end == std::string::npos) return "";
  const size_t begin = text.find_last_of('\n', end);
  return text.substr(begin + 1, end - begin);
}

// All that comes until the other end is closed, or until then; false if the time was up first.
bool read_until(const shm::File& from, AnswerClock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - AnswerClock::now()).count();
    pollfd asked{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&asked, 1, static_cast<int>(left)) != 1) return false;
    std::array<char, 4096> bytes{};
    const ssize_t count = read(from.get(), bytes.data(), bytes.size());
    if (count <= 0) return true;
    text.append(bytes.data(), static_cast<size_t>(count));
  }
}

struct AnswerPipe {
  shm::File from;
  shm::File to;
};

AnswerPipe new_pipe() {
  std::array<int, 2> ends = {-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  return {shm::File(ends[0]), shm::File(ends[1])};
}

}  // namespace

PythonLook::PythonLook(std::string program) : program_(std::move(program)), is_chosen_(!program_.empty()) {
  if (!is_chosen_) program_ = usual_python();
  AnswerPipe output = new_pipe();
  AnswerPipe complaints = new_pipe();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.to.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, complaints.to.get(), STDERR_FILENO);
  std::array<std::string, 4> words = {program_, "-m", "shardway.doctor", "--json"};
  std::array<char*, 5> arguments = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                                    nullptr};
  if (posix_spawnp(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ) != 0) pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  output_ = std::move(output.from);
  complaints_ = std::move(complaints.from);
}

PythonLook::~PythonLook() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

DoctorLine PythonLook::failure(const std::string& complaint) const {
  if (complaint.find("No module named 'shardway'") != std::string::npos)
    return {.subject = kSubject,
            .health = is_chosen_ ? Health::broken : Health::ok,
            .what = program_ + " has no shardway, so torch was not looked at; C++ programs need none",
            .advice = "shardway doctor --python PROGRAM asks another Python"};
  return {.subject = kSubject,
          .health = Health::broken,
          .what = program_ + " cannot use shardway: " + last_line_of(complaint),
          .advice = program_ + " -c 'import shardway' shows all of it"};
}

DoctorLines PythonLook::lines(AnswerClock::time_point deadline) {
  if (pid_ <= 0)
    return {{.subject = kSubject,
             .health = is_chosen_ ? Health::broken : Health::ok,
             .what = program_ + " cannot be started, so torch was not looked at; C++ programs need none",
             .advice = "shardway doctor --python PROGRAM asks another Python"}};
  std::string output;
  std::string complaint;
  if (!read_until(output_, deadline, output))
    return {{.subject = kSubject,
             .health = Health::slow,
             .what = program_ + " has not answered in time, so torch was not looked at",
             .advice = "try again: the first import of torch reads much from disk"}};
  (void)read_until(complaints_, deadline, complaint);
  try {
    return lines_in(last_line_of(output));
  } catch (const std::exception&) {
    return {failure(complaint)};
  }
}

DoctorLines lines_in(const std::string& json) {
  DoctorLines lines;
  const nlohmann::json told = nlohmann::json::parse(json);
  for (const nlohmann::json& line : told.at("lines")) {
    lines.push_back({.subject = line.at("subject"),
                     .health = health_named(line.at("health")),
                     .what = line.at("what"),
                     .advice = line.at("advice")});
  }
  return lines;
}

}  // namespace shardway::cli
