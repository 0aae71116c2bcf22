// The best plan over lengths of one tensor dim, and the lengths at which it changes.
#pragma once

#include <string>
#include <vector>

#include "cli/notation.h"
#include "cli/terminal.h"
#include "shardway/plan.h"

namespace shardway::cli {

struct SweepRow {
  int64_t length = 0;
  int64_t bytes = 0;  // of the whole tensor
  double cost_us = 0;
  std::string plan = {};  // its text
};

// A row for each doubling of the length, and for each length between them from which on another plan is best.
// Throws std::invalid_argument if the dim is split raggedly: its sizes fit one length only.
std::vector<SweepRow> sweep_plans(const Layout& from, const Layout& to, const Sweep& sweep,
                                  const PlanOptions& options);

// What is swept, in a line.
std::string sweep_heading(const Layout& from, const Layout& to, const Sweep& sweep);

std::string sweep_text(const Layout& from, const Layout& to, const Sweep& sweep,
                       const std::vector<SweepRow>& rows, bool is_estimate, const Terminal& terminal);
std::string sweep_json(const Sweep& sweep, const std::vector<SweepRow>& rows);

}  // namespace shardway::cli
