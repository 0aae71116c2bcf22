#include "cli/calibrate/calibration_output.h"

#include <filesystem>
#include <stdexcept>

#include "cli/calibrate/calibration_plot.h"
#include "cli/whole_file.h"

namespace shardway::cli {

CalibrationOutput::CalibrationOutput(OutputNames names, const Calibration& about) : names_(std::move(names)) {
  refuse_unwritable(names_.file);
  if (!names_.plot.empty()) refuse_unwritable(names_.plot);
  std::error_code ignored;
  exists_ = std::filesystem::is_regular_file(names_.file, ignored);
  if (!exists_) return;
  const std::string advice = ": remove it, or give another name with -o";
  try {
    file_ = read_topology_file(names_.file);
  } catch (const std::invalid_argument& problem) {
    throw std::invalid_argument(std::string(problem.what()) + advice);
  }
  const std::string objection = objection_to_joining(file_, about);
  if (!objection.empty()) throw std::invalid_argument(names_.file + ": " + objection + advice);
}

std::string CalibrationOutput::add(const MeasuredTopology& run) {
  if (!run.calibration.is_complete) {
    const TopologyFile alone = joined({}, run);
    const std::string place = exists_ ? names_.file + ".partial" : names_.file;
    write_whole(place, to_json(alone) + "\n");
    draw(alone);
    return place + " has what was measured until the interruption\n";
  }
  file_ = joined(file_, run);
  write_whole(names_.file, to_json(file_) + "\n");
  draw(file_);
  exists_ = true;
  return names_.file + " is written" +
         (file_.runs.size() == 1 ? "" : ", with " + std::to_string(file_.runs.size()) + " numbers of ranks") +
         "\n";
}

void CalibrationOutput::draw(const TopologyFile& file) const {
  if (!names_.plot.empty()) write_whole(names_.plot, calibration_svg(file));
}

}  // namespace shardway::cli
