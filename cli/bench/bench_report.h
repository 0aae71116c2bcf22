// What a bench found, as a table, CSV, JSON and a picture.
#pragma once

#include <string>
#include <vector>

#include "plan/calibration/calibration.h"

namespace shardway::cli {

// One call of a bench, in the columns of nccl-tests. A GB is 10^9 bytes.
struct BenchRow {
  std::string library = {};
  MeasuredCall call = {};
  double algbw = 0;  // GB/s: bytes by time
  double busbw = 0;  // GB/s: what each rank moves to or from others, by time
};

// Where and when it ran.
struct BenchSetting {
  std::string version = {};
  std::string machine = {};
  std::string processor = {};
  std::string kernel = {};
  int64_t cores = 1;
  int64_t ranks = 2;
  std::string date = {};
  bool is_complete = true;
};

struct BenchResult {
  BenchSetting setting = {};
  std::vector<BenchRow> rows = {};             // of one call, by size, and there library by library
  std::vector<std::string> not_compared = {};  // with what, and why; a line each
};

inline constexpr const char* kOwnLibrary = "shardway";

// What the trials of a library took. us[trial][repetition].
struct LibraryTimes {
  std::string library = kOwnLibrary;
  std::vector<std::vector<double>> us = {};
};

// Rows of the trials that were repeated at least twice.
std::vector<BenchRow> bench_rows(const std::vector<Trial>& trials, const std::vector<LibraryTimes>& times,
                                 int64_t ranks);

std::string bench_text(const BenchResult& result);
std::string bench_csv(const BenchResult& result);
std::string bench_json(const BenchResult& result);
std::string bench_svg(const BenchResult& result);

}  // namespace shardway::cli
