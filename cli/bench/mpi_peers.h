// The MPIs of this machine, whose calls are timed beside ours.
#pragma once

#include <string>
#include <vector>

#include "cli/calibrate/trials.h"

namespace shardway::cli {

// An MPI that can be compared with: what starts its ranks, and what compiles them.
struct MpiPeer {
  std::string launcher = {};
  std::string compiler = {};
};

// Those on PATH; Debian's names of several MPIs count. With `folder` the one in it, or in its bin: then
// std::invalid_argument if there is none.
std::vector<MpiPeer> found_mpis(const std::string& folder);

struct MpiResults {
  std::string library = {};  // its name and version
  TrialResults trials = {};
};

// Compiles a program of ranks, starts it, and measures as measure() does. Throws std::runtime_error, which
// says why, if the MPI cannot do it.
MpiResults measure_mpi(const MpiPeer& peer, const std::vector<Trial>& trials, const TrialLimits& limits,
                       const TrialWatch& watch);

// "Open MPI v4.1.4, package: …" as "Open MPI 4.1.4".
std::string library_name(const std::string& said);

}  // namespace shardway::cli
