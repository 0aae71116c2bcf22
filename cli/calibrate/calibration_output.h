// Where a calibration puts what it found.
#pragma once

#include <string>

#include "plan/text/calibration_file.h"

namespace shardway::cli {

struct OutputNames {
  std::string file = {};
  std::string plot = {};  // empty: none
};

// A topology file to which runs are added, one after another.
class CalibrationOutput {
 public:
  // If the file exists, it has runs of this machine: `about` says which that is. Throws std::invalid_argument
  // if it has others, or if a file cannot be written.
  CalibrationOutput(OutputNames names, const Calibration& about);

  // Writes the run to the file, with what that has of other numbers of ranks. A run that was interrupted goes
  // to another file if there is one already. Returns what was done, as a line.
  std::string add(const MeasuredTopology& run);

 private:
  void draw(const TopologyFile& file) const;

  OutputNames names_;
  bool exists_ = false;
  TopologyFile file_ = {};
};

}  // namespace shardway::cli
