// What shardway's Python package says of torch, its engines and GPUs: `python -m shardway.doctor`, asked.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "cli/doctor/doctor_line.h"
#include "shm/memory/file.h"

namespace shardway::cli {

// A Python that is looking at itself while this program goes on.
class PythonLook {
 public:
  // `program` is a path or a name; empty: the Python beside this program, or else the first on the PATH.
  explicit PythonLook(std::string program);
  PythonLook(const PythonLook&) = delete;
  PythonLook& operator=(const PythonLook&) = delete;
  ~PythonLook();  // ends it

  // Waits for what it says, until then at most.
  DoctorLines lines(std::chrono::steady_clock::time_point deadline);

 private:
  DoctorLine failure(const std::string& complaint) const;

  std::string program_;
  bool is_chosen_ = false;  // by the caller, who then wants an answer
  pid_t pid_ = -1;
  shm::File output_;
  shm::File complaints_;
};

// What a Python printed with --json, as lines. Throws std::exception if it is nothing of the kind.
DoctorLines lines_in(const std::string& json);

}  // namespace shardway::cli
