// The options of `shardway plan` as written, and what they mean.
#pragma once

#include <optional>
#include <string>

#include "cli/notation.h"
#include "shardway/plan.h"

namespace CLI {
class App;
}

namespace shardway::cli {

struct PlanCall {
  std::string mesh = {};
  std::string shape = {};
  std::string dtype = "f32";
  std::string from = {};
  std::string to = {};
  std::string to_mesh = {};
  std::string relabel = {};
  bool wants_relabel = false;
  std::string topology = {};
  std::string devices_per_host = {};
  std::string hosts = {};
  std::string max_memory = {};
  std::string rules = "shardway";
  std::string sweep = {};
  bool wants_sweep = false;
  std::string plot = {};
  bool wants_json = false;
  std::string html = {};
};

// Adds the options of a call, and the help that teaches them.
void add_options(CLI::App& options, PlanCall& call);

// A call whose texts are read and fit together. Throws std::invalid_argument naming the option that is wrong.
struct PlanQuestion {
  Layout from;
  Layout to;
  PlanOptions options = {};
  std::optional<Sweep> sweep = {};
};

PlanQuestion read_question(const PlanCall& call);

}  // namespace shardway::cli
